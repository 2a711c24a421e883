"""Faults of the device world (`faults_*.py`), and one scenario from seed to files (`../device_world.py`)."""
