"""Folders that NVIDIA's `nsys-jax` writes: NVTX ranges of XLA, projected onto the device."""
