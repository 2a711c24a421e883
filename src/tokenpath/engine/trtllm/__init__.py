"""TensorRT-LLM's scheduler: capacity, then micro-batch. Read `scheduler`, `capacity`, `blocks`."""

from __future__ import annotations

from tokenpath.engine.trtllm.scheduler import TrtllmScheduler
from tokenpath.engine.trtllm.settings import TrtllmSettings

__all__ = ["TrtllmScheduler", "TrtllmSettings"]
