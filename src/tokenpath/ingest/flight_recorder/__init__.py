"""Dumps of PyTorch's NCCL flight recorder, as JSON or pickle. Start at `dump`."""
