"""The least that any reader must do: inflate if packed, and look at every byte once."""

import mmap
import sys
from pathlib import Path

path = sys.argv[1]
quotes = 0
if path.endswith(".gz"):
    from isal import igzip

    with igzip.open(path, "rb") as file:
        while chunk := file.read(1 << 22):
            quotes += chunk.count(b'"')
else:
    with (
        Path(path).open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        for at in range(0, len(data), 1 << 22):
            quotes += data[at : at + (1 << 22)].count(b'"')
print(quotes)
