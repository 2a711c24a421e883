"""Drives the scanner over a file of messages; the messages that it does not take are decoded one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.fpm.scan import MAX_ROWS, Col, Int64s, Status, key_table, position_table, scan
from tokenpath.ingest.fpm.steps import Steps
from tokenpath.ingest.json_lines import count_problems
from tokenpath.ingest.messages import MAX_MESSAGE_BYTES, read_one
from tokenpath.ingest.msgpack import Incomplete, Malformed
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options

_PIECE_BYTES = 2**19
_BYTES_A_MESSAGE = 300


def read_fast(path: Path, options: Options, builder: CaptureBuilder, steps: Steps) -> None:
    """All messages of a file of MessagePack, as `messages.messages` reads them."""
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    scanner = _Scanner(builder, steps, unpacked.num_stored_bytes // _BYTES_A_MESSAGE)
    held, base = b"", 0
    for chunk in unpacked.chunks:
        for begin in range(0, len(chunk), _PIECE_BYTES):
            held += chunk[begin : begin + _PIECE_BYTES].tobytes()
            try:
                done = scanner.read(held, base)
            except Malformed as error:
                builder.num_events += 1
                builder.losses.add("damaged message", offset=base + scanner.at, what=str(error))
                return
            held, base = held[done:], base + done
            if len(held) > MAX_MESSAGE_BYTES:
                builder.num_events += 1
                builder.losses.add("message too long", offset=base)
                return
            unpacked.report_scanned(base)
    if held:
        builder.losses.add("no end of the file", offset=base, dropped=False)
    count_problems(unpacked, builder.losses)


class _Scanner:
    def __init__(self, builder: CaptureBuilder, steps: Steps, num_rows: int) -> None:
        self._builder, self._steps = builder, steps
        self._scan = scan(num_rows)
        self._tables = key_table(), position_table()
        self._state = np.zeros(2, np.int64)
        self._rows = np.zeros((MAX_ROWS, len(Col)), np.int64)
        self._walls = np.zeros(MAX_ROWS, np.float64)
        self._scratch = np.zeros(8, np.uint8)
        self.at = 0
        """Byte of the data at which the last message began."""

    def read(self, held: bytes, base: int) -> int:
        """Read the messages that are whole; where the first that is not begins. Malformed."""
        data, state = np.frombuffer(held, np.uint8), self._state
        state[:] = 0
        real = self._scratch.view(np.float64)
        while True:
            begin = int(state[0])
            status = self._scan(
                data, len(held), *self._tables, state, self._rows, self._walls, self._scratch, real
            )
            num = int(state[1])
            if num:
                self._builder.num_events += num
                self._steps.finish()
                self._hand_on(held, base, num)
            if status == Status.OTHER:
                self.at = int(state[0])
                try:
                    message, end = read_one(held, self.at, base)
                except Incomplete:
                    return self.at
                self._builder.num_events += 1
                self._steps.take(message)
                state[0] = end
            elif int(state[0]) == begin:
                return begin

    def _hand_on(self, held: bytes, base: int, num: int) -> None:
        rows = self._rows[:num].copy()
        walls = np.rint(self._walls[:num] * 1e9).astype(np.int64)
        workers = self._workers(held, rows[:, Col.WORKER_AT], rows[:, Col.WORKER_LENGTH])
        rows[:, Col.OFFSET] += base
        self._steps.take_rows(rows, walls, workers)

    def _workers(self, held: bytes, at: Int64s, length: Int64s) -> Int64s:
        """The number of each row's worker."""
        size = int(length[0])
        if size > 0 and (length == size).all():
            # Nearly always all rows are of one worker.
            names = np.frombuffer(held, np.uint8)[at[:, None] + np.arange(size)]
            if (names == names[0]).all():
                name = names[0].tobytes().decode("utf-8", "replace")
                return np.full(len(at), self._steps.worker(name))
        known: dict[bytes, int] = {}
        numbers = []
        for begin, size in zip(at.tolist(), length.tolist(), strict=True):
            text = held[begin : begin + size] if begin >= 0 else b""
            if text not in known:
                known[text] = self._steps.worker(text.decode("utf-8", "replace"))
            numbers.append(known[text])
        return np.array(numbers, np.int64)
