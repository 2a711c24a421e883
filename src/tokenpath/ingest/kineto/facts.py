"""What a file says about its origin: rank, clock, host, profiler, devices."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tokenpath.core.redact import Redactor
from tokenpath.ingest.kineto.columns import NULL
from tokenpath.ingest.kineto.document import Header
from tokenpath.ingest.kineto.numbers import parse_int64
from tokenpath.ingest.kineto.texts import readable

_RANK_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?:(?:global_?)?rank|worker)[-_.=]?(\d{1,6})(?!\d)|(?:^|[^a-z])tp-(\d{1,4})(?!\d)",
    re.IGNORECASE,
)
# torch.profiler.tensorboard_trace_handler: {host}_{pid}.{time}.pt.trace.json
_TENSORBOARD_NAME = re.compile(r"(?P<worker>.+)_\d+\.\d{10,}\.pt\.trace\.json")
# The years 2001 and 2096: what lies between, counted from 1970, is a date; an uptime is far below.
_EPOCH_FROM_NS = 1_000_000_000 * 10**9
_EPOCH_TO_NS = 4_000_000_000 * 10**9

_VENDOR_OF_NAME = (
    ("amd", re.compile(r"\bAMD\b|Radeon|Instinct|\bMI\d{2,3}|gfx\d", re.IGNORECASE)),
    (
        "nvidia",
        re.compile(r"NVIDIA|Tesla|GeForce|Quadro|\b[ABHLVT]\d{1,3}S?\b|RTX|GTX|TITAN|\bGB?\d00"),
    ),
    ("intel", re.compile(r"Intel|Arc\b|Gaudi|Ponte Vecchio", re.IGNORECASE)),
    ("huawei", re.compile(r"Ascend|Huawei", re.IGNORECASE)),
    ("meta", re.compile(r"MTIA", re.IGNORECASE)),
    ("ibm", re.compile(r"Spyre|\bAIU\b", re.IGNORECASE)),
)


@dataclass(frozen=True)
class Origin:
    """Rank, clock and profiler of a file, None where it does not say."""

    trace_id: str | None
    """The profiler's id of the run."""
    base_ns: int | None
    """`baseTimeNanoseconds`."""
    rank: int | None
    """Rank in the job."""
    world_size: int | None
    """Ranks in the job."""
    rank_source: str | None
    """`distributedInfo` or `file name`."""
    host: str | None
    """Host name as written."""
    profiler: str | None
    """What wrote the file."""
    is_synthetic: bool
    """Whether the file says that nobody measured it."""


def read_origin(header: Header, file_name: str, categories: Sequence[str]) -> Origin:
    """What the header says, the rank also from the file name."""
    entries = header.entries
    info = entries.get("distributedInfo")
    rank = _natural(info.get("rank")) if isinstance(info, dict) else None
    world = _natural(info.get("world_size")) if isinstance(info, dict) else None
    rank_source = None if rank is None else "distributedInfo"
    if rank is None:
        match = _RANK_IN_NAME.search(file_name)
        if match is not None:
            rank, rank_source = int(match[1] or match[2]), "file name"
    base = parse_int64(entries.get("baseTimeNanoseconds"))
    return Origin(
        trace_id=_text(entries.get("trace_id")),
        base_ns=None if base == NULL else base,
        rank=rank,
        world_size=world,
        rank_source=rank_source,
        host=_text(entries.get("host_name")),
        profiler=_profiler(header, categories),
        is_synthetic=_is_synthetic(entries),
    )


def _is_synthetic(entries: Mapping[str, object]) -> bool:
    """Whether the header is marked: `"synthetic": true`, or `"tokenpath": {"state": "synthetic"}`."""
    mark = entries.get("tokenpath")
    if isinstance(mark, dict) and mark.get("state") == "synthetic":
        return True
    return entries.get("synthetic") not in (None, False, 0)


def is_epoch(first_ns: int, base_ns: int | None) -> bool:
    """Whether times (base already added) count from 1970."""
    if base_ns is not None and base_ns > 0:
        return True
    return _EPOCH_FROM_NS <= first_ns < _EPOCH_TO_NS


def mask_file_name(name: str, redactor: Redactor) -> str:
    """The file name without the host that torch's tensorboard handler begins it with."""
    name = readable(name)
    match = _TENSORBOARD_NAME.match(name)
    if match is not None and _RANK_IN_NAME.search(match["worker"]) is None:
        name = redactor.host(match["worker"]) + name[match.end("worker") :]
    return redactor.mask([name])[0]


@dataclass(frozen=True)
class DeviceProperties:
    """One entry of `deviceProperties`, None where it does not say."""

    name: str | None
    """As the driver reports it."""
    num_sms: int | None
    """Streaming multiprocessors or compute units."""
    memory_bytes: int | None
    """Total memory."""


def read_devices(header: Header) -> dict[int, DeviceProperties]:
    """Device properties by device number."""
    listed = header.entries.get("deviceProperties")
    devices: dict[int, DeviceProperties] = {}
    for entry in listed if isinstance(listed, list) else ():
        if not isinstance(entry, dict):
            continue
        number = parse_int64(entry.get("id"))
        if number == NULL:
            continue
        sms = _natural(entry.get("numSms"))
        devices[number] = DeviceProperties(
            name=_text(entry.get("name")),
            num_sms=sms if sms is not None and 0 < sms < 2**31 else None,
            memory_bytes=_natural(entry.get("totalGlobalMem")),
        )
    return devices


def find_vendor(
    header: Header, device_name: str | None, api_names: Sequence[str], vendor_hint: str | None
) -> str | None:
    """The maker of a device by evidence: its name, the runtime's version entries, the calls made."""
    for vendor, pattern in _VENDOR_OF_NAME:
        if device_name and pattern.search(device_name):
            return vendor
    if vendor_hint is not None:
        return vendor_hint
    entries = header.entries
    if any(key in entries for key in ("roctracer_version", "hip_runtime_version")):
        return "amd"
    if any(name.startswith("hip") for name in api_names):
        return "amd"
    if "cupti_version" in entries or any(name.startswith(("cuda", "cu")) for name in api_names):
        return "nvidia"
    if any(name.startswith(("ze", "ur")) for name in api_names):
        return "intel"
    if any(name.startswith("AscendCL@") for name in api_names):
        return "huawei"
    return None


def _profiler(header: Header, categories: Sequence[str]) -> str | None:
    if header.is_bare_list:
        return None
    if "schemaVersion" in header.entries or "cpu_op" in categories or "kernel" in categories:
        return "torch.profiler"
    return None


def _natural(value: object) -> int | None:
    number = parse_int64(value)
    return number if 0 <= number < 2**63 else None


def _text(value: object) -> str | None:
    return readable(value) if isinstance(value, str) and value else None
