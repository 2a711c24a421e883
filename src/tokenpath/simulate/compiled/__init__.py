"""The event loop in machine code, for vLLM replicas that do prefill and decode: start with `run.py`."""
