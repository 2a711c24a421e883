"""Runs of the device world as files of torch.profiler, one a rank: `write.py` says which events, `text.py` how."""
