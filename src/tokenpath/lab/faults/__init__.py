"""Faults by world."""
