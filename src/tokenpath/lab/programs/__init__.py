"""Programs of the device world: what real engines and training loops do with hosts and devices.

Start with `setup.py` (what is drawn), then `knobs.py` (what faults turn), then `serving.py` and `training.py`.
"""
