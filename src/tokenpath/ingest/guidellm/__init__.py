"""Reports of GuideLLM."""
