"""Outputs of AIPerf and genai-perf."""
