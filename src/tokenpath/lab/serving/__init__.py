"""The serving world: clients, a front end and engine replicas as an event loop. Start with `plan.py`, then `loop.py`."""
