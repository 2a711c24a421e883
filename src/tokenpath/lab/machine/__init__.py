"""The event loop of the device world: host threads, streams, collectives, all in one order of time.

Start with `run.py` (what goes in and comes out), then `loop.py` (the loop).
"""
