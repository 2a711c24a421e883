"""Replay: the dependency graph of measured work, timed again under a what-if."""
