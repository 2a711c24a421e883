"""Predict what an engine would do with a workload on named hardware; a simulated run is a capture."""
