"""Compiled scanners of OTLP; kept apart, because importing this compiles it. Start at `entry`."""
