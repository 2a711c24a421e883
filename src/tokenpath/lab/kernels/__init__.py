"""Kernels of real libraries: their names, shapes of launch, and how long they take.

Start with `times.py` (roofline over measured efficiencies), then `catalogue.py` (one function a kernel).
"""
