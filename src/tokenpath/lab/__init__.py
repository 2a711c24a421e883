"""Lab: scenarios with known faults, written as a profiler or an engine would record them, the truth apart."""
