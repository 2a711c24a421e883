"""The raw row: what either scanner keeps of one event, as int64 values.

The slow and the fast scanner write the same rows, so that one test can demand that they agree. A text
is a code of the reader's `Texts`; a real number is the bit pattern of its float64.
"""

from __future__ import annotations

import enum

NULL = -(2**63)
"""Stands for a field that the event does not have; no field can hold it as a value."""


class Col(enum.IntEnum):
    """Positions in a raw row."""

    PHASE = 0
    """ASCII code of `ph`."""
    CATEGORY = 1
    NAME = 2
    PAIR = 3
    """Number of the (pid, tid) pair."""
    TS = 4
    """Nanoseconds as the file counts them, rounded down."""
    DUR = 5
    FLAGS = 6
    """Sum of `Flag` values."""
    OFFSET = 7
    """Byte offset of the event in the unpacked file."""
    ID = 8
    """Id of a flow arrow."""
    EXTERNAL = 9
    CORRELATION = 10
    DEVICE = 11
    STREAM = 12
    GRID = 13
    """x; y and z follow."""
    BLOCK = 16
    """x; y and z follow."""
    REGISTERS = 19
    SHARED = 20
    BLOCKS_PER_SM = 21
    WARPS_PER_SM = 22
    OCCUPANCY = 23
    BYTES = 24
    GRAPH = 25
    GRAPH_NODE = 26
    PYTHON = 27
    PYTHON_PARENT = 28
    SEQUENCE = 29
    DIMS = 30
    TYPES = 31
    STACK = 32
    COLLECTIVE = 33
    ELEMENTS_IN = 34
    ELEMENTS_OUT = 35
    DTYPE = 36
    GROUP_SIZE = 37
    GROUP = 38
    COLLECTIVE_SEQUENCE = 39
    WAIT_STREAM = 40
    WAIT_CORRELATION = 41
    TASK = 42
    """Kind of a synchronisation or of an Ascend task."""
    ADDRESS = 43
    META = 44
    """`args.name` or `args.labels` of a metadata event."""


NUM_COLUMNS = 45


class Flag(enum.IntFlag):
    """What a scanner noticed about the numbers of an event."""

    SUB_NS = 1
    """A time had digits below the nanosecond other than zero; it was rounded down."""
    TS_RANGE = 2
    """`ts` does not fit int64 nanoseconds; TS is NULL."""
    DUR_RANGE = 4
    """`dur` does not fit int64 nanoseconds; DUR is NULL."""
    TS_BAD = 8
    """`ts` is there but no number; TS is NULL."""
    DUR_BAD = 16
    """`dur` is there but no number; DUR is NULL."""
    SPYRE = 32
    """Carries the device cycle stamps of an IBM Spyre card."""


class Kind(enum.IntEnum):
    """How the value of an argument is read."""

    INT = 0
    """An integer, bare or quoted; anything else is NULL."""
    REAL = 1
    """A number."""
    TEXT = 2
    """A string; other JSON is kept as compact JSON text."""
    JSON = 3
    """A string as it is, other JSON as compact JSON text."""
    DIM3 = 4
    """A list of three integers."""


ARGUMENTS: dict[str, tuple[Col, Kind]] = {
    "External id": (Col.EXTERNAL, Kind.INT),
    "external id": (Col.EXTERNAL, Kind.INT),
    "correlation": (Col.CORRELATION, Kind.INT),
    "device": (Col.DEVICE, Kind.INT),
    "stream": (Col.STREAM, Kind.INT),
    "Stream Id": (Col.STREAM, Kind.INT),
    "sycl queue": (Col.STREAM, Kind.INT),
    "grid": (Col.GRID, Kind.DIM3),
    "block": (Col.BLOCK, Kind.DIM3),
    "registers per thread": (Col.REGISTERS, Kind.INT),
    "shared memory": (Col.SHARED, Kind.INT),
    "blocks per SM": (Col.BLOCKS_PER_SM, Kind.REAL),
    "warps per SM": (Col.WARPS_PER_SM, Kind.REAL),
    "est. achieved occupancy %": (Col.OCCUPANCY, Kind.REAL),
    "bytes": (Col.BYTES, Kind.INT),
    "Bytes": (Col.BYTES, Kind.INT),
    "size": (Col.BYTES, Kind.INT),
    "graph id": (Col.GRAPH, Kind.INT),
    "graph node id": (Col.GRAPH_NODE, Kind.INT),
    "Python id": (Col.PYTHON, Kind.INT),
    "Python parent id": (Col.PYTHON_PARENT, Kind.INT),
    "Sequence number": (Col.SEQUENCE, Kind.INT),
    "Input Dims": (Col.DIMS, Kind.JSON),
    "Input dims": (Col.DIMS, Kind.JSON),
    "Input type": (Col.TYPES, Kind.JSON),
    "Call stack": (Col.STACK, Kind.TEXT),
    "Collective name": (Col.COLLECTIVE, Kind.TEXT),
    "In msg nelems": (Col.ELEMENTS_IN, Kind.INT),
    "Out msg nelems": (Col.ELEMENTS_OUT, Kind.INT),
    "dtype": (Col.DTYPE, Kind.TEXT),
    "Group size": (Col.GROUP_SIZE, Kind.INT),
    "Process Group Name": (Col.GROUP, Kind.TEXT),
    "Seq": (Col.COLLECTIVE_SEQUENCE, Kind.INT),
    "wait_on_stream": (Col.WAIT_STREAM, Kind.INT),
    "wait_on_cuda_event_record_corr_id": (Col.WAIT_CORRELATION, Kind.INT),
    "cuda_sync_kind": (Col.TASK, Kind.TEXT),
    "Task Type": (Col.TASK, Kind.TEXT),
    "Addr": (Col.ADDRESS, Kind.INT),
    "name": (Col.META, Kind.TEXT),
    "labels": (Col.META, Kind.TEXT),
}
"""Which arguments are kept, where and how. Two keys of one column in one event: the later one counts."""

TEXT_COLUMNS: tuple[Col, ...] = (
    Col.CATEGORY,
    Col.NAME,
    *sorted({column for column, kind in ARGUMENTS.values() if kind in (Kind.TEXT, Kind.JSON)}),
)
"""Columns that hold text codes."""
