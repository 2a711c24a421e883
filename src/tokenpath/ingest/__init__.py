"""Files to captures: one reader per format behind one contract.

Start with `reading` (what the user calls), `reader` (the contract) and `kineto` (the first format).
"""

from __future__ import annotations

from tokenpath.ingest.formats import sniff
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.reading import read

__all__ = ["Options", "Reader", "read", "sniff"]
