"""Metrics of engines and accelerators under one name and unit. Start at `mapping.yaml`, then `document`."""
