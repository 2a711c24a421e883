"""The readers of JAX/XLA profiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

_PLANE = re.compile(
    rb"\A\x0a[\x00-\xff]{1,32}?\x12[\x00-\xff]{1,3}?"
    rb"(?:/(?:host|device|virtualdevice):|Task Environment|Host CPUs|Syscalls|#Chip)"
)
"""An XSpace begins with a plane, a plane with its id and name."""
_TICKS = re.compile(rb'"highres-ticks"\s*:')


class XplaneReader:
    """XLA's own profile, a protobuf message."""

    name = "xplane"
    version = 1
    describes = "JAX, TensorFlow or PyTorch/XLA profile, .xplane.pb"
    is_generic = False

    def sniff(self, head: bytes, path: Path) -> bool:
        """A message whose first field is a plane of a known name; damaged ones by their file name."""
        if head[:1] != b"\x0a":
            return False
        return _PLANE.match(head) is not None or ".xplane.pb" in path.name

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the profiles of one job, a file for each host."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.xla.source import read_xplane

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_xplane(self, path, own) for path, own in each])


class XlaJsonReader:
    """The Chrome JSON that XLA's tools make of the same profile."""

    name = "xla-json"
    version = 1
    describes = "JAX/XLA profile converted to JSON, .trace.json.gz"
    is_generic = False

    def sniff(self, head: bytes, _path: Path) -> bool:
        """An object that claims high-resolution ticks before its first event."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")
        return start[:1] == b"{" and _TICKS.search(start[:4096]) is not None

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the traces of one job, a file for each host."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.xla.source import read_xla_json

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_xla_json(self, path, own) for path, own in each])


READERS = (XplaneReader(), XlaJsonReader())
