"""A `core.report`, or a capture, on a medium; no renderer knows a verb.

Start with `text` (the taste of all of them), then `json` (the same content for programs) and `html`.
`perfetto` writes a capture for trace viewers. Everything that comes from a file is hostile: `escape`.
"""
