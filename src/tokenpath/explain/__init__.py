"""Where the time of a capture went: one file an analysis, a page a finding code.

Start with `report` (what is shown), `analysis` (what is measured, in order) and `gaps` (why a device
waits).
"""
