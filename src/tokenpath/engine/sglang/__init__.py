"""SGLang's scheduler: radix cache, prefill first, retraction. Read `scheduler`, `admission`, `radix`."""

from __future__ import annotations

from tokenpath.engine.sglang.scheduler import SglangScheduler
from tokenpath.engine.sglang.settings import SglangSettings

__all__ = ["SglangScheduler", "SglangSettings"]
