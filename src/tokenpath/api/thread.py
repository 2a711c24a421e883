"""Thread: one request's whole way through an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokenpath.api.load import Progress, load
from tokenpath.capture.capture import Capture
from tokenpath.core.request_ids import plain_request_id

if TYPE_CHECKING:
    from tokenpath.core.report import Report


@dataclass(frozen=True)
class Threaded:
    """The report, and the capture that it is about."""

    report: Report
    """For people and programs: render it with `tokenpath.export`."""
    capture: Capture
    """The linked capture."""


def thread(
    request_id: str,
    source: Capture | Sequence[str | Path],
    *,
    keep_hosts: bool = False,
    progress: Progress | None = None,
    columns: Mapping[str, str] | None = None,
) -> Threaded:
    """Follow one request of a linked capture, or of the files that `load` reads.

    An id with what engines put around it (`cmpl-R-0`) is understood, too. Raises InputError for input
    that cannot be read and UsageError for a request that is not in it.
    """
    from tokenpath.explain.thread import thread as follow

    capture = (
        source
        if isinstance(source, Capture)
        else load(source, keep_hosts=keep_hosts, progress=progress, columns=columns)
    )
    _, names = capture.codes("request", "request_id")
    wanted = request_id if request_id in names else plain_request_id(request_id)[0]
    return Threaded(follow(capture, wanted), capture)
