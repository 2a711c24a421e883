"""Records of a vLLM stat-logger plug-in: SchedulerStats and IterationStats, a line a call."""
