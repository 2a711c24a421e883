"""Step logs of tokenpath's own recorder for vLLM: each scheduler step with each request's share.

Start with `record` (what is kept of a line), `fast` and `slow` (two ways to the same columns) and `tables`.
"""
