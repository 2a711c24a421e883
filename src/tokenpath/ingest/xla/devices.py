"""Timelines of accelerators: kernels, device ranges, steps, collectives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.xla.details import read_copied_bytes, read_kernel_details, read_shape
from tokenpath.ingest.xla.families import Work, of_gpu, of_hlo
from tokenpath.ingest.xla.lines import (
    NO_TEXT,
    NULL,
    Int64s,
    Line,
    Plane,
    Texts,
    distinct,
    same,
    texts_of,
    together,
)
from tokenpath.ingest.xla.parts import Column, Parts

_DEVICE = re.compile(r"/device:([A-Z]+):(\d{1,9})(?: (.*))?$", re.ASCII)
_OPS = frozenset({"XLA Ops", "Sparse Core Ops"})
_STEPS = frozenset({"Steps", "Sparse Core Steps"})
_REPEATS = re.compile(
    r"(?:TensorFlow|Framework) (?:Ops|Name Scope)$|Source code$|Launch Stats$|Host Offload Ops"
)
"""Lines that XLA's tools derive from the others."""
_OF_CORES = frozenset({"XLA Ops", "XLA Modules"})
"""Lines that a TPU's core writes, and that the profiler derives for a GPU."""
_COUNTERS = re.compile(r"_?counters_")
_STEP_NUMBER = re.compile(r"(\d{1,18})$", re.ASCII)
_VENDORS = {"nvidia": "nvidia", "amd": "amd"}

Integers = NDArray[Any]
_NO_SIZE = (NO_TEXT, 0, 0)


@dataclass(frozen=True)
class _Place:
    """Where the events of a timeline belong."""

    device: int
    """Row of `device`."""
    steps: dict[int, int]
    """Rows of `step` by the group number that the profiler gave them."""


def is_device(plane: Plane) -> bool:
    """Whether a plane is that of an accelerator."""
    return _DEVICE.match(plane.name) is not None


def add_device(builder: CaptureBuilder, plane: Plane) -> int:
    """Its row of `device`; every figure the plane states becomes a setting."""
    kind, index, part = _DEVICE.findall(plane.name)[0]
    stats = plane.stats
    for name, value in stats.items():
        builder.setting(f"{plane.name.removeprefix('/')}.{name}", value)
    said = stats.get("device_type_string") or stats.get("gpu_model")
    vendor = _VENDORS.get(str(stats.get("device_vendor", "")).lower())
    return builder.add_rows(
        "device",
        [
            {
                "index": int(index),
                "name": f"{said or kind} {part}" if part else said and str(said),
                "num_sms": _int32(stats.get("core_count")),
                "memory_bytes": _whole(stats.get("memory_size")),
                "vendor": "google" if kind == "TPU" else vendor,
            }
        ],
    )


def _int32(value: object) -> int | None:
    found = _whole(value)
    return found if found is not None and found < 2**31 else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 2**63 else None


def add_device_lines(parts: Parts, losses: Losses, lines: Iterable[Line], device: int) -> None:
    """The rows of a device's timelines; its steps first, as kernels name them."""
    steps: dict[int, int] = {}
    for line in sorted(lines, key=lambda line: line.name not in _STEPS):
        if line.name in _STEPS:
            steps |= _add_steps(parts, line)
        else:
            _add_line(parts, losses, line, _Place(device, steps))


def _add_line(parts: Parts, losses: Losses, line: Line, place: _Place) -> None:
    is_derived = line.plane.startswith("/device:GPU") and line.name in _OF_CORES
    if is_derived or _REPEATS.match(line.name):
        losses.add("repeats other timelines", len(line), lost=False)
    elif _COUNTERS.match(line.name):
        losses.add("device counter", len(line))
    elif line.name in _OPS:
        _add_hlo_ops(parts, line, place)
    elif line.name.startswith("Stream"):
        _add_stream(parts, line, place)
    else:
        _add_ranges(parts, line, place, line.names, line.name or line.plane)


def _add_stream(parts: Parts, line: Line, place: _Place) -> None:
    """Kernels and copies of a GPU stream, and ranges that say which HLO and operator they serve."""
    _add_kernels(parts, line, place, of_gpu, line.text("hlo_op"))
    _add_origins(parts, line, place, with_hlo=True)


def _add_hlo_ops(parts: Parts, line: Line, place: _Place) -> None:
    """HLO instructions as a core ran them. One that contains others (`while`, `call`) is a range."""
    own_name = [_instruction(text) for text in line.names.values]
    line.names = Texts(line.names.codes, []).mapped([*own_name])
    outer = _contains_others(line.offset_ps, line.duration_ps)
    if outer.any():
        around = line.take(outer)
        _add_ranges(parts, around, place, around.names, "HLO control flow")
        line = line.take(~outer)
    _add_kernels(parts, line, place, of_hlo, line.text("hlo_category"))
    _add_origins(parts, line, place, with_hlo=False)


def _instruction(text: str) -> str:
    """`%fusion.3 = f32[...] fusion(...)` -> `fusion.3`."""
    return text.split(" = ", 1)[0].lstrip("%") if text.startswith("%") else text


def _contains_others(start: Int64s, duration: Int64s) -> NDArray[np.bool_]:
    """Which events wholly contain a later one that takes time."""
    result = np.zeros(len(start), np.bool_)
    timed = np.flatnonzero(duration > 0)
    order = timed
    if not (start[timed[1:]] > start[timed[:-1]]).all():
        order = timed[np.lexsort((-duration[timed], start[timed]))]
    begin, length = start[order], duration[order]
    if len(order) > 1:
        inside = begin[1:] - begin[:-1]
        result[order[:-1]] = (inside < length[:-1]) & (length[1:] <= length[:-1] - inside)
    return result


def _at(line: Line, place: _Place) -> dict[str, Column]:
    return {
        "device_id": np.full(len(line), place.device, np.int32),
        "stream_id": np.full(len(line), line.id, np.int64),
        "start_ns": line.start_ns,
        "end_ns": line.end_ns,
    }


def _add_ranges(parts: Parts, line: Line, place: _Place, names: Texts, domain: str) -> None:
    columns = _at(line, place) | {
        "side": same(len(line), "device"),
        "name": names,
        "domain": same(len(line), domain),
    }
    parts.add("range", len(line), columns)


def _add_kernels(
    parts: Parts,
    line: Line,
    place: _Place,
    judge: Callable[[str, str | None, str | None], Work],
    hlo: Texts,
) -> None:
    num_rows = len(line)
    if not num_rows:
        return
    which, works = _works(line, judge, hlo)
    kind = Texts(which, []).mapped([work.kind for work in works])
    family = Texts(which, []).mapped([work.family for work in works])
    columns = _at(line, place) | {
        "name": line.names,
        "kind": kind,
        "family": family,
        "correlation_id": line.number("correlation_id"),
    }
    if place.steps and "group_id" in line.integers:
        columns["step_id"] = _step_rows(line, place.steps)
    columns |= _detail_columns(line.text("kernel_details"))
    copied = line.text("memcpy_details")
    if "Memset_details" in line.texts:
        other = line.texts["Memset_details"]
        codes = np.where(copied.codes >= 0, copied.codes, other.codes + len(copied.values))
        codes[(copied.codes < 0) & (other.codes < 0)] = NO_TEXT
        copied = Texts(codes.astype(np.int32), copied.values + other.values)
    sizes = [read_copied_bytes(text) for text in copied.values]
    columns["bytes"] = _looked_up(sizes, copied.codes, NULL, np.int64)
    first = parts.add("kernel", len(line), columns)
    _add_collectives(parts, line, which, works, first)


def _step_rows(line: Line, steps: dict[int, int]) -> NDArray[np.int32]:
    groups, which = distinct(line.integers["group_id"])
    rows = [steps.get(group, NO_TEXT) for group in groups.tolist()]
    return np.ascontiguousarray(np.array(rows, np.int32)[which])


def _works(
    line: Line, judge: Callable[[str, str | None, str | None], Work], hlo: Texts
) -> tuple[NDArray[np.int32], list[Work]]:
    """What each event does: entry of the list; each distinct combination is judged once."""
    which, said = together(line.names, hlo, _framework_ops(line))
    return which, [judge(name or "", hlo_text, op) for name, hlo_text, op in said]


def _detail_columns(details: Texts) -> dict[str, Column]:
    if not details.values:
        return {}
    found = [read_kernel_details(text) for text in details.values]
    codes = details.codes
    columns: dict[str, Column] = {}
    for name in ("grid", "block"):
        sizes = [getattr(entry, name) or _NO_SIZE for entry in found]
        columns[name] = np.array([*sizes, _NO_SIZE], np.int32).take(codes, axis=0, mode="wrap")
    for name, field in (
        ("registers_per_thread", "registers"),
        ("shared_memory_bytes", "shared_bytes"),
    ):
        known = [getattr(entry, field) for entry in found]
        columns[name] = _looked_up(known, codes, NO_TEXT, np.int32)
    shares = [entry.occupancy_percent for entry in found]
    reals = np.array([*(np.nan if share is None else share for share in shares), np.nan])
    columns["occupancy_percent"] = reals[codes]
    return columns


def _looked_up(
    values: list[int | None], codes: NDArray[np.int32], null: int, kind: type
) -> Integers:
    table: Integers = np.array(
        [*(null if value is None else value for value in values), null], kind
    )
    return table.take(codes, mode="wrap")  # -1, no text, is the last entry


def _add_origins(parts: Parts, line: Line, place: _Place, *, with_hlo: bool) -> None:
    """Ranges that name the HLO instruction and the framework's operator behind each event."""
    if with_hlo:
        op, module = line.text("hlo_op"), line.text("hlo_module")
        _add_named(parts, line, place, "HLO", _joined(module, op))
    _add_named(parts, line, place, "framework operator", _framework_ops(line))


def _framework_ops(line: Line) -> Texts:
    """The framework's operator behind each event: the first statistic of the line that holds such names.

    `level 0` is TensorFlow's, `tf_op` JAX's on TPU. For a GPU JAX writes `XlaModule:` there and the
    operator in `name`.
    """
    for stat in ("level 0", "tf_op", "name"):
        texts = line.text(stat)
        if texts.values and (stat == "level 0" or any("/" in text for text in texts.values)):
            return texts.mapped([text.rstrip(":") or None for text in texts.values])
    return line.text("")


def _joined(module: Texts, op: Texts) -> Texts:
    """`module/op`, or the operation alone where the module is not told."""
    which, said = together(module, op)
    names = [None if own is None else own if of is None else f"{of}/{own}" for of, own in said]
    return Texts(which, []).mapped(names)


def _add_named(parts: Parts, line: Line, place: _Place, domain: str, names: Texts) -> None:
    rows = np.flatnonzero(names.codes >= 0)
    if len(rows):
        part = line if len(rows) == len(line) else line.take(rows)
        _add_ranges(parts, part, place, names.take(rows), domain)


def _add_collectives(
    parts: Parts, line: Line, which: Integers, works: list[Work], first: int
) -> None:
    of_work = np.array([work.collective is not None for work in works], np.bool_)
    rows = np.flatnonzero(of_work[which])
    if not len(rows):
        return
    shapes = line.text("shape_with_layout")
    sizes = [read_shape(text) for text in shapes.values]
    num_bytes = [None if size is None else size.num_bytes for size in sizes]
    ops = Texts(which[rows], []).mapped([work.collective for work in works])
    codes = shapes.codes[rows]
    output = _looked_up(num_bytes, codes, NULL, np.int64)
    is_sum = np.array([op == "allreduce" for op in ops.values], np.bool_)[ops.codes]
    columns: dict[str, Column] = {
        "op": ops,
        # What goes into a sum comes out in the same size; of others only the result is told.
        "payload_bytes": np.where(is_sum, output, NULL),
        "dtype": Texts(codes, []).mapped([None if size is None else size.dtype for size in sizes]),
        "kernel_id": (rows + first).astype(np.int32),
        "output_bytes": output,
    }
    parts.add("collective", len(rows), columns)


def _add_steps(parts: Parts, line: Line) -> dict[int, int]:
    """The steps of a device; their rows by group number."""
    named = line.text("step_name")
    names = [
        named.values[own] if own >= 0 else line.names.values[code]
        for own, code in zip(named.codes.tolist(), line.names.codes.tolist(), strict=True)
    ]
    first = add_steps(parts, line, names)
    groups = line.number("group_id").tolist()
    return {group: first + at for at, group in enumerate(groups) if group != NULL}


def add_steps(parts: Parts, line: Line, names: list[str]) -> int:
    """Rows of `step` for marks whose names end in the step's number; the first of them."""
    numbers = [_STEP_NUMBER.search(name) for name in names]
    known = [NULL if found is None else int(found[1]) for found in numbers]
    columns: dict[str, Column] = {
        "name": texts_of(names),
        "observer": same(len(names), "profiler"),
        "number": np.array(known, np.int64),
        "start_ns": line.start_ns,
        "end_ns": line.end_ns,
    }
    return parts.add("step", len(names), columns)
