"""vLLM's V1 scheduler and block pool. Start with `schedule.py`, then `pool.py`, then `scheduler.py`."""

from tokenpath.engine.vllm.scheduler import VllmScheduler

__all__ = ["VllmScheduler"]
