"""json.loads of the whole file: decoding alone."""

import json
import sys
from pathlib import Path

with Path(sys.argv[1]).open("rb") as file:
    json.loads(file.read())
