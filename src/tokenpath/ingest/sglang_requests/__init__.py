"""Request metrics of SGLang: a JSON line a finished request. Prompts are never kept."""
