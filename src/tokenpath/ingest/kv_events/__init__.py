"""KV cache events of vLLM and SGLang: blocks stored and removed. Token ids are counted, never kept."""
