"""Boards of measured runs: one module each, all of the shape that `board` states."""
