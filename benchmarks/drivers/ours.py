"""tokenpath as a whole: read, link, explain, JSON. `ours.py TRACE [WORKERS]`."""

import sys
from pathlib import Path

from tokenpath.explain.report import explain
from tokenpath.export import json
from tokenpath.ingest import read
from tokenpath.stitch import link

workers = int(sys.argv[2]) if len(sys.argv) > 2 else None
report, _ = explain(link(read([Path(sys.argv[1])], num_workers=workers)))
sys.stdout.write(json.render(report))
