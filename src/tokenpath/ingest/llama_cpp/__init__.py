"""llama.cpp server: timings of responses, state of slots. Prompts and answers are never kept."""
