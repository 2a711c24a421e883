"""The reader of nsys-jax folders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.ingest.reader import Options, options_by_file

TRACE = Path("nvtx_gpu_proj_trace") / "trace.parquet"


class NsysJaxReader:
    """A folder of nsys-jax (JAX-Toolbox), one for each process of a job."""

    name = "nsys_jax"
    version = 1
    describes = "nsys-jax output, a folder with nvtx_gpu_proj_trace/trace.parquet"
    is_generic = False

    def sniff(self, _head: bytes, path: Path) -> bool:
        """A folder with the projected trace in it."""
        return path.is_dir() and (path / TRACE).is_file()

    def read(self, paths: Sequence[Path], options: Options) -> Capture:
        """Read the folders of one job into one capture, each its own row of `source`."""
        from tokenpath.capture.combine import combine
        from tokenpath.ingest.nsys_jax.folder import read_folder

        each = zip(paths, options_by_file(paths, options), strict=True)
        return combine([read_folder(self, path, own) for path, own in each])


READERS = (NsysJaxReader(),)
