"""NVTX annotations: operators of PyTorch, ranges with their domain, marks, names of threads.

What PyTorch writes for its operators (`operators`) are rows of `op`. Every other range is a row of
`range`; a mark is one without length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokenpath.capture.intervals import Int64s
from tokenpath.core.units import INT64_MIN
from tokenpath.ingest.nsys.names import Codes, codes_of
from tokenpath.ingest.nsys.operators import Operators, take_operators
from tokenpath.ingest.nsys.places import process_key
from tokenpath.ingest.nsys.state import State, labels, repeated
from tokenpath.ingest.sqlite_columns import Columns

NVTX = "NVTX_EVENTS"

# ENUM_NSYS_EVENT_TYPE; the second of each pair is the NVTXT form of older programs.
_RANGES = (59, 60, 70, 71)
_MARKS = (34, 65)
_DOMAIN = 75
_THREAD_NAME = 39
_MPI_RANK = re.compile(r"MPI Rank (\d{1,6})$", re.ASCII)
_PAYLOADS = ("uint64Value", "int64Value", "uint32Value", "int32Value", "jsonTextId")


def read_nvtx(state: State) -> None:
    """All annotations of an export."""
    columns = state.read(
        NVTX,
        [
            *("start", "end", "eventType", "globalTid", "textId", "domainId", "rangeId"),
            *_PAYLOADS,
        ],
        ["text"],
    )
    if columns.num_rows == 0:
        return
    kind = columns.integer("eventType")
    _read_names(state, columns, np.flatnonzero(kind == _THREAD_NAME))
    domains = _domains(state, columns, np.flatnonzero(kind == _DOMAIN))
    is_mark = np.isin(kind, _MARKS)
    is_range = np.isin(kind, _RANGES)
    columns.integers["end"] = np.where(is_mark, columns.integer("start"), columns.integer("end"))
    others = int((~is_mark & ~is_range).sum())
    state.builder.losses.add("name of an NVTX object", others, lost=False)
    state.num_unplaced += others
    chosen = np.flatnonzero(is_mark | is_range)
    payload = np.zeros(len(chosen), np.bool_)
    for name in _PAYLOADS:
        payload |= columns.integer(name)[chosen] != INT64_MIN
    state.builder.losses.add("NVTX payload", int(payload.sum()), dropped=False)
    part = Columns(len(chosen), {name: columns.integer(name)[chosen] for name in ("start", "end")})
    rows, start, end = state.in_time(part)
    at = chosen[rows]
    serial = columns.integer("globalTid")[at]
    source = state.processes.rows(process_key(serial))
    thread = state.threads.rows(serial, source)
    texts = _texts(state, columns, at)
    host: dict[str, NDArray[np.generic]] = {
        "source_id": source,
        "thread_id": thread,
        "start_ns": start,
        "end_ns": end,
    }
    operators = take_operators(texts, is_range[at])
    _add_operators(state, host, operators)
    rest = np.ones(len(at), np.bool_)
    rest[operators.rows] = False
    _add_ranges(state, host, np.flatnonzero(rest), texts, columns.integer("domainId")[at], domains)


def _add_operators(
    state: State, host: Mapping[str, NDArray[np.generic]], operators: Operators
) -> None:
    if len(operators.rows) == 0:
        return
    state.builder.add(
        "op",
        {
            **{name: values[operators.rows] for name, values in host.items()},
            "name": operators.names,
            "sequence": operators.sequence,
            "input_shapes": operators.shapes.dictionary_encode(),
        },
    )


def _add_ranges(
    state: State,
    host: Mapping[str, NDArray[np.generic]],
    rows: Int64s,
    texts: pa.Array,
    domain: Int64s,
    domains: dict[tuple[int, int], str],
) -> None:
    if len(rows) == 0:
        return
    named = texts.take(pa.array(rows)).dictionary_encode()
    codes = named.indices.fill_null(len(named.dictionary)).to_numpy().astype(np.int32)
    values = (
        [*named.dictionary.to_pylist(), None] if named.null_count else named.dictionary.to_pylist()
    )
    source = host["source_id"][rows]
    state.builder.add(
        "range",
        {
            **{name: column[rows] for name, column in host.items()},
            "side": repeated("host", len(rows)),
            "name": state.named(values, codes),
            "domain": _domain_column(source, domain[rows], domains),
        },
    )


def _domain_column(
    source: NDArray[np.generic], domain: Int64s, domains: dict[tuple[int, int], str]
) -> pa.DictionaryArray:
    distinct, which = codes_of(domain)
    number_of: dict[str, int] = {}
    codes: Codes = np.full(len(domain), -1, np.int32)
    for number, value in enumerate(distinct.tolist()):
        if value in (0, INT64_MIN):
            continue
        here = np.flatnonzero(which == number)
        for owner in np.unique(source[here]).tolist():
            name = domains.get((owner, value))
            if name is not None:
                code = number_of.setdefault(name, len(number_of))
                codes[here[source[here] == owner]] = code
    return labels(codes, list(number_of))


def _domains(state: State, columns: Columns, rows: Int64s) -> dict[tuple[int, int], str]:
    """(source, domain number) -> name."""
    serial = columns.integer("globalTid")[rows]
    source = state.processes.rows(process_key(serial))
    state.processes.uncount(source)
    texts = _texts(state, columns, rows).to_pylist()
    numbers = columns.integer("domainId")[rows].tolist()
    return {
        (owner, number): text
        for owner, number, text in zip(source.tolist(), numbers, texts, strict=True)
        if text
    }


def _read_names(state: State, columns: Columns, rows: Int64s) -> None:
    texts = _texts(state, columns, rows).to_pylist()
    for serial, text in zip(columns.integer("globalTid")[rows].tolist(), texts, strict=True):
        if text and serial != INT64_MIN:
            state.thread_names.setdefault(serial, text)
            match = _MPI_RANK.match(text)
            if match is not None:
                state.ranks.setdefault(int(process_key(np.array([serial]))[0]), int(match[1]))


def _texts(state: State, columns: Columns, rows: Int64s) -> pa.Array:
    """The text of each row: its own, or the registered one it names."""
    own = columns.text("text")
    if len(rows) < len(own):
        own = own.take(pa.array(rows))
    numbers = columns.integer("textId")[rows]
    if (numbers == INT64_MIN).all():
        return own
    registered = state.strings.column(numbers)
    if own.null_count == len(own):
        return registered
    import pyarrow.compute as pc

    return pc.coalesce(own, registered)
