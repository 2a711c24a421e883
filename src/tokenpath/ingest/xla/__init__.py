"""JAX/XLA profiles: `*.xplane.pb` and the `trace.json.gz` made from it.

Start with `reader`, `lines` (what both forms become) and `tables` (what comes of it).
"""
