"""Results of `vllm bench serve`."""
