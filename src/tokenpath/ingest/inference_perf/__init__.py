"""Reports of inference-perf."""
