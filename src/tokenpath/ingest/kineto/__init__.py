"""PyTorch Kineto JSON: two scanners that give the same raw rows, and the way from rows to tables.

Start with `columns` (the raw row), `document` (the frame of the file) and `sorting` (what is kept).
"""
