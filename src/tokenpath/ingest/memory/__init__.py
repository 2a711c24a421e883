"""GPU memory as PyTorch records it: snapshots of the allocator (`snapshot`) and raw timelines (`timeline`)."""
