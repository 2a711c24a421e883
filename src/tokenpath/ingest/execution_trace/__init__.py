"""Execution traces: PyTorch's JSON (`pytorch`), Chakra's JSON (`chakra_json`) and protobuf (`chakra_proto`).

Start with `nodes`, the rows that all three become.
"""
