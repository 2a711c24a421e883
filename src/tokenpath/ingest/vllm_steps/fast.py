"""Drives the scanner over blocks of lines; the lines that it does not take are read as JSON."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tokenpath.ingest.json_lines import Block
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.vllm_steps.record import STEP_FIELDS, Adds, Ids, Marks, Rows
from tokenpath.ingest.vllm_steps.scan import (
    ARENA_BYTES,
    MAX_CODES,
    MAX_ROWS,
    MAX_SHARES,
    NUM_STEP_COLUMNS,
    PREEMPTED,
    TABLE_SIZE,
    State,
    Status,
    key_table,
    scan,
)
from tokenpath.ingest.vllm_steps.slow import read_block as read_slow


class FastReader:
    """Reads the blocks of one file in order."""

    def __init__(self, ids: Ids, losses: Losses, num_rows: int) -> None:
        """`num_rows` is about how many lines the file has: few are not worth compiled code."""
        self._ids, self._losses = ids, losses
        self._scan = scan(num_rows)
        self._keys = key_table()
        self._state = np.zeros(len(State), np.int64)
        self._table = np.zeros(TABLE_SIZE, np.int32)
        self._texts = np.zeros((MAX_CODES, 2), np.int64)
        self._arena = np.zeros(ARENA_BYTES, np.uint8)
        self._numbers = np.zeros(MAX_CODES, np.int32)
        self._num_known = 0
        self._steps = np.zeros((MAX_ROWS, NUM_STEP_COLUMNS), np.int64)
        self._shares = np.zeros((MAX_SHARES, 5), np.int64)
        self._adds = np.zeros((MAX_ROWS, 4), np.int64)
        self._marks = np.zeros((MAX_ROWS, 3), np.int64)

    def read_block(self, block: Block, first_line: int) -> Iterator[Rows]:
        """The rows of a block, in one or several parts."""
        data, size, state = np.frombuffer(block.data, np.uint8), len(block.data), self._state
        state[: State.CODES] = 0
        state[State.LINE] = first_line
        rows = (self._steps, self._shares, self._adds, self._marks)
        texts = (self._table, self._texts, self._arena)
        num_slow = 1
        while state[State.POSITION] < size:
            begin = int(state[State.POSITION])
            status = self._scan(data, size, self._keys, state, *rows, *texts)
            self._learn()
            if state[State.POSITION] > begin:
                yield self._rows()
            state[State.STEPS : State.CODES] = 0
            if status == Status.FULL:
                self._forget()
            # A line that does not fit into empty tables is read as JSON, too.
            is_stuck = status != Status.DONE and state[State.POSITION] == begin
            if status == Status.OTHER_LINE or is_stuck:
                yield self._read_slow(block, num_slow)
                # Where many lines are of another kind, the scanner is asked ever less often.
                num_slow *= 2

    def _read_slow(self, block: Block, num_lines: int) -> Rows:
        state = self._state
        begin = end = int(state[State.POSITION])
        line = int(state[State.LINE])
        for _ in range(num_lines):
            end = block.data.find(b"\n", end) + 1
            state[State.LINE] += 1
            if not end:
                end = len(block.data)
            if end == len(block.data):
                break
        state[State.POSITION] = end
        part = Block(block.offset + begin, block.data[begin:end])
        return read_slow(part, line, self._ids, self._losses)

    def _learn(self) -> None:
        """Number the texts that are new."""
        num_codes = int(self._state[State.CODES])
        if num_codes == self._num_known:
            return
        used, places = self._arena.tobytes(), self._texts[self._num_known : num_codes].tolist()
        new = [used[at : at + length].decode("ascii") for at, length in places]
        self._numbers[self._num_known : num_codes] = self._ids.array(new)
        self._num_known = num_codes

    def _forget(self) -> None:
        """Make room for other texts."""
        self._table[:] = 0
        self._state[State.CODES] = self._state[State.ARENA] = self._num_known = 0

    def _rows(self) -> Rows:
        state, numbers = self._state, self._numbers
        step, share = self._steps[: state[State.STEPS]], self._shares[: state[State.SHARES]]
        add, mark = self._adds[: state[State.ADDS]], self._marks[: state[State.MARKS]]
        texts = list(self._ids.numbers) if len(mark) else []
        finished, preempted = mark[mark[:, 2] != PREEMPTED], mark[mark[:, 2] == PREEMPTED]
        return Rows(
            {name: step[:, number].copy() for number, name in enumerate(STEP_FIELDS)},
            step[:, -2].copy(),
            step[:, -1].copy(),
            numbers[share[:, 0]],
            share[:, 1].astype(np.int32),
            share[:, 2].copy(),
            share[:, 3].copy(),
            share[:, 4].copy(),
            Adds(
                add[:, 0].tolist(),
                numbers[add[:, 1]].tolist(),
                add[:, 2].tolist(),
                add[:, 3].tolist(),
            ),
            Marks(
                finished[:, 0].tolist(),
                numbers[finished[:, 1]].tolist(),
                [texts[number] for number in numbers[finished[:, 2]].tolist()],
            ),
            Marks(
                preempted[:, 0].tolist(), numbers[preempted[:, 1]].tolist(), [None] * len(preempted)
            ),
        )
