"""Two captures, or two sets of them: what differs, down to the kernel or the cause of a gap.

Start with `nodes` (the tree whose parts add up to the difference), then `device`, then `report`.
"""
