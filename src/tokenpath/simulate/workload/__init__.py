"""What is asked of a deployment: arrivals, lengths, shared content, sessions.

Read first: `workload` (the table that all others make or take), `generate` (a workload from a few numbers), `fit`
(a model of a measured one). Then `files` and `from_capture` for what is read, `describe` for what is said.
"""
