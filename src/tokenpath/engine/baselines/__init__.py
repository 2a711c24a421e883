"""Batching as it was before iterations were scheduled: static, and with a window. Read `scheduler`."""

from __future__ import annotations

from tokenpath.engine.baselines.scheduler import StaticScheduler, WindowScheduler
from tokenpath.engine.baselines.settings import StaticSettings, WindowSettings

__all__ = ["StaticScheduler", "StaticSettings", "WindowScheduler", "WindowSettings"]
