"""Analyses beyond idle time, one file each; start with `contract`, then `registry`."""
