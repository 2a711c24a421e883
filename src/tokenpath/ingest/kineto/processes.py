"""What the metadata says about processes and threads, and where device work runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.kineto.categories import (
    PROCESS_LABELS_CODE,
    PROCESS_NAME_CODE,
    THREAD_NAME_CODE,
)
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.stores import NO_CODE, Store, required

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]

_DEVICE_LABEL = re.compile(r"(?:GPU|NPU|XPU|MTIA|HPU|TPU|AIU)\b", re.IGNORECASE)
_LAST_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True)
class Pairs:
    """The (pid, tid) pairs of a file, as text codes, and the names that its metadata gives them."""

    pid: Int32s
    """Text code of the process id by pair."""
    tid: Int32s
    """Text code of the thread id by pair."""
    texts: list[str]
    """Texts by code."""
    thread_name: Int32s
    """Text code by pair; NO_CODE if the file names none."""
    process_name: dict[int, str]
    """By text code of the process id; the first name counts."""
    process_label: dict[int, str]
    """By text code of the process id."""

    def name_of(self, pair: int) -> str:
        """Process name of a pair, empty if there is none."""
        return self.process_name.get(int(self.pid[pair]), "")

    def is_device(self, pair: int) -> bool:
        """Whether the metadata calls the process a device."""
        pid = int(self.pid[pair])
        label = self.process_label.get(pid, "")
        name = self.process_name.get(pid, "")
        return bool(_DEVICE_LABEL.match(label) or name == "Ascend Hardware")


def read_pairs(metadata: Store, pairs: Int32s, texts: list[str]) -> Pairs:
    """Pairs with the names of the metadata events, which the store gives up."""
    pid, tid = pairs[:, 0], pairs[:, 1]
    thread_name = np.full(len(pairs), NO_CODE, np.int32)
    process_name: dict[int, str] = {}
    process_label: dict[int, str] = {}
    if metadata.num_rows:
        kind, pair, meta = (required(metadata.take(name)) for name in ("name", "pair", "meta"))
        threads = kind == THREAD_NAME_CODE
        # Assigned backwards, so that the first name of a thread is the one that stays.
        thread_name[pair[threads][::-1]] = meta[threads][::-1]
        for code, found in (
            (PROCESS_NAME_CODE, process_name),
            (PROCESS_LABELS_CODE, process_label),
        ):
            rows = np.flatnonzero(kind == code)
            for row in rows.tolist():
                found.setdefault(int(pid[pair[row]]), texts[meta[row]])
    return Pairs(pid, tid, texts, thread_name, process_name, process_label)


def place(
    pairs: Pairs, pair: Int32s, device: Int64s | None, stream: Int64s | None
) -> tuple[Int64s, Int64s]:
    """Device and stream numbers of device work; what the event does not say, its pid and tid say.

    A tid such as `stream 7` is stream 7. A pid or tid without a number gets the next free one.
    """
    device = np.full(len(pair), NULL, np.int64) if device is None else device
    stream = np.full(len(pair), NULL, np.int64) if stream is None else stream
    for values, codes in ((device, pairs.pid), (stream, pairs.tid)):
        unknown = np.flatnonzero(values == NULL)
        if len(unknown) == 0:
            continue
        number_of: dict[int, int] = {}
        for code in np.unique(codes[pair[unknown]]).tolist():
            match = _LAST_NUMBER.search(pairs.texts[code])
            number = int(match[0]) if match else len(number_of)
            is_named = pairs.process_name.get(code) == "Ascend Hardware" and values is device
            number_of[code] = len(number_of) if is_named or abs(number) >= 2**62 else number
        values[unknown] = [number_of[code] for code in codes[pair[unknown]].tolist()]
    return device, stream
