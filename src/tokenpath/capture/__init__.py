"""The currency: declared tables of what happened, in memory and on disk.

Start with `tables` (what is declared), then `capture` (how it is held) and `intervals` (the algebra).
"""
