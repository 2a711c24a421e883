"""TensorRT-LLM: iteration stats of /metrics, request times of /perf_metrics."""
