"""Engine and profiler steps, from the annotations that engines write.

Forms read (N and T tokens, R requests, sq/sk summed query and key lengths):
- PyTorch profiler: `ProfilerStep#3`
- vLLM V1: `execute_context_R(T)_generation_R(T)` and, with `detailed_trace_annotation`,
  `execute_N_context_R(sq..sk..sqsq..sqsk..)_generation_R(...)` (vllm PR 22496, PR 37524)
- SGLang: `step[DECODE bs=32]`, `step[EXTEND bs=15 toks=15360]`, `step[MIXED ...]`
- ATOM: `prefill[bs= tok= ...]`, `decode[bs=117/128 tok= ...]`
- a recorder's `tokenpath.step:N` or `vllm.step:N` around a worker's call: the engine's number of the step
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture, build_table, nullable
from tokenpath.capture.nesting import Int32s, innermost, parents
from tokenpath.stitch.runs import runs_of

NO_NUMBER = -1
"""What an unknown number of a step reads as."""

MAX_DIGITS = 18
"""Digits of the longest number that is read: any such number fits into 64 bits."""


@dataclass(frozen=True)
class StepLabel:
    """What the label of a step says."""

    engine: str
    """`vllm`, `sglang`, `atom`, `profiler`."""
    phase: str | None = None
    """`prefill`, `decode`, `mixed`; None when the label has no request or token."""
    num_prefill_requests: int | None = None
    """Requests in prefill."""
    num_prefill_tokens: int | None = None
    """Tokens computed for them."""
    num_decode_requests: int | None = None
    """Requests in decode."""
    num_decode_tokens: int | None = None
    """Tokens computed for them."""
    sum_decode_kv_tokens: int | None = None
    """Summed key length of the decode requests."""
    number: int | None = None
    """The engine's own number of the step."""


_VLLM = re.compile(
    r"execute_(?:\d+_)?context_(\d+)\(([^)]*)\)_generation_(\d+)\(([^)]*)\)$", re.ASCII
)
_SGLANG = re.compile(r"step\[(EXTEND|DECODE|MIXED)([^\]]*)\]", re.ASCII)
_ATOM = re.compile(r"(prefill|decode)\[([^\]]*)\]", re.ASCII)
_FIELD = re.compile(r"([a-z_]+)=(\d+)", re.ASCII)
_SUMS = re.compile(r"sq(\d+)sk(\d+)", re.ASCII)
_PHASE = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}

_NUMBERED = re.compile(r"(?:vllm|tokenpath)\.step:(\d{1,18})$", re.ASCII)
_NUMBER = "number"
_PRECEDENCE = ("vllm", "sglang", "atom", _NUMBER, "profiler")
"""Where a file has several kinds (SGLang nests `step[...]` in `execute_...`), the first one counts."""


def read_label(name: str) -> StepLabel | None:
    """What an annotation says as the label of a step; None when it is none."""
    if name.startswith("ProfilerStep"):
        return StepLabel("profiler")
    if match := _VLLM.match(name):
        num_prefill, prefill, num_decode, decode = match.groups()
        prefill_tokens, _ = _tokens(prefill)
        decode_tokens, decode_kv = _tokens(decode)
        has_prefill, has_decode = num_prefill.strip("0") != "", num_decode.strip("0") != ""
        phase = "mixed" if has_prefill and has_decode else "prefill" if has_prefill else None
        return StepLabel(
            "vllm",
            phase or ("decode" if has_decode else None),
            _number(num_prefill),
            prefill_tokens,
            _number(num_decode),
            decode_tokens,
            decode_kv,
        )
    if match := _NUMBERED.match(name):
        return StepLabel(_NUMBER, number=int(match[1]))
    if match := _SGLANG.match(name):
        kind, rest = match.groups()
        fields = {key: _number(value) for key, value in _FIELD.findall(rest)}
        batch = fields.get("bs")
        if kind == "DECODE":
            return StepLabel("sglang", "decode", 0, 0, batch, batch)
        if kind == "EXTEND":
            return StepLabel("sglang", "prefill", batch, fields.get("toks"), 0, 0)
        return StepLabel("sglang", _PHASE[kind])
    if match := _ATOM.match(name):
        phase, rest = match.groups()
        fields = {key: _number(value) for key, value in _FIELD.findall(rest)}
        batch, tokens = fields.get("bs"), fields.get("tok")
        if phase == "decode":
            return StepLabel("atom", "decode", 0, 0, batch, tokens)
        return StepLabel("atom", "prefill", batch, tokens, 0, 0)
    return None


def _tokens(text: str) -> tuple[int | None, int | None]:
    """Query tokens and key tokens of one half of a vLLM label."""
    if sums := _SUMS.match(text):
        return _number(sums[1]), _number(sums[2])
    return (_number(text), None) if text.isdecimal() and text.isascii() else (None, None)


def _number(digits: str) -> int | None:
    """The number; None when it is too long to be a count (a damaged label)."""
    return int(digits) if len(digits) <= MAX_DIGITS else None


def find_steps(capture: Capture) -> pa.Table:
    """The `step` table from the host ranges of a capture, in order of time within each source."""
    codes, names = capture.codes("range", "name")
    labels = [read_label(name) for name in names]
    is_host = capture.ids("range", "device_id") == NO_ID
    engine = np.array([label.engine if label else "" for label in labels] or [""], object)
    of_row = np.where((codes >= 0) & is_host, engine[np.maximum(codes, 0)], "")
    source = capture.ids("range", "source_id")
    rows = []
    is_sglang: dict[int, bool] = {}
    for number in np.unique(source[of_row != ""]):
        here = source == number
        chosen = next(kind for kind in _PRECEDENCE if (here & (of_row == kind)).any())
        rows.append(np.flatnonzero(here & (of_row == chosen)))
        # Patched SGLang writes `execute_...` around its own `step[...]`.
        is_sglang[number] = bool((here & (of_row == "sglang")).any())
    if not rows:
        return build_table("step", {})
    row = np.concatenate(rows)
    start = capture.int64("range", "start_ns")[row]
    order = np.lexsort((start, source[row]))
    row = row[order]
    found = [labels[code] for code in codes[row]]
    columns: dict[str, Any] = {
        "source_id": source[row],
        "name": [names[code] for code in codes[row]],
        "start_ns": start[order],
        "end_ns": capture.int64("range", "end_ns")[row],
    }
    for name in StepLabel.__dataclass_fields__:
        columns[name] = [getattr(label, name) for label in found]
    columns["engine"] = [
        "sglang" if is_sglang[number] else None if label.engine == _NUMBER else label.engine
        for number, label in zip(source[row], found, strict=True)
    ]
    columns["observer"] = ["profiler"] * len(row)
    columns["number"] = nullable(_numbers(capture, row, of_row, labels, codes), NO_NUMBER)
    return build_table("step", columns)


def _numbers(
    capture: Capture,
    row: NDArray[np.int64],
    of_row: NDArray[np.object_],
    labels: list[StepLabel | None],
    codes: Int32s,
) -> NDArray[np.int64]:
    """The engine's number of each step: of the numbered range on its thread that it is, or lies in."""
    marks = np.flatnonzero(of_row == _NUMBER)
    result = np.full(len(row), NO_NUMBER, np.int64)
    if len(marks) == 0:
        return result
    thread, start, end = (
        capture.ids("range", "thread_id"),
        capture.int64("range", "start_ns"),
        capture.int64("range", "end_ns"),
    )
    group, begin, close = thread[marks], start[marks], end[marks]
    around = innermost(
        group, begin, close, parents(group, begin, close), thread[row], start[row], end[row]
    )
    number = np.array([getattr(labels[code], "number", NO_NUMBER) for code in codes[marks]])
    result[around >= 0] = number[around[around >= 0]]
    return result


def step_of_kernel(capture: Capture) -> Int32s:
    """For each kernel the step in which it was launched; -1 for none.

    Kernels run long after their step's host range has closed, so the launch decides, not the time of
    the kernel. A kernel whose launch is not in the file belongs to no step. Of steps within steps the
    innermost counts; the parts of a split capture share their steps.
    """
    call = capture.ids("kernel", "api_call_id")
    result = np.full(len(call), NO_ID, np.int32)
    kernels = np.flatnonzero(call >= 0)
    if len(kernels) == 0:
        return result
    run, start, end = (
        runs_of(capture, "step"),
        capture.int64("step", "start_ns"),
        capture.int64("step", "end_ns"),
    )
    at = capture.int64("api_call", "start_ns")[call[kernels]]
    result[kernels] = innermost(
        run, start, end, parents(run, start, end), runs_of(capture, "kernel")[kernels], at, at + 1
    )
    return result
