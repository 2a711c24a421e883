"""Replay: the dependency graph of measured work, timed again under a what-if.

Start with `graph` (points, edges, delays), then `change` (what a fix would change).
"""
