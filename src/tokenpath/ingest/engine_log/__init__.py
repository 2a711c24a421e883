"""Server logs of vLLM and SGLang: the lines that say what is running."""
