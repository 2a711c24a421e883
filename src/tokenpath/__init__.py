"""Follow every token of an LLM service from the request to the kernel.

Where to start reading, in this order:

1. ``tokenpath/capture/tables.py``: the declared tables that everything else reads and writes;
2. ``tokenpath/api/explain.py``: one verb from files to findings, as a function;
3. ``tokenpath/core/finding.py``: what a claim of this product consists of.

ARCHITECTURE.md draws the layers; imports only point down them.
"""

__version__ = "0.1.0.dev0"
