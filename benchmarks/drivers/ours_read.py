"""tokenpath, reading alone: file to capture. `ours_read.py TRACE`."""

import sys
from pathlib import Path

from tokenpath.ingest import read

read([Path(sys.argv[1])])
