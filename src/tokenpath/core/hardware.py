"""What each accelerator can do at best, and which accelerator a trace was taken on.

The numbers live in `hardware.toml`, each with the document and date it comes from; docs/hardware.md is
printed from it by `python -m tokenpath.core.hardware`. The file is read on the first lookup, not on import.

A lookup never guesses: a name that fits no part or several gives None, and so does a name whose memory
or core count contradicts the part (a MIG slice, an MI300X in a partition mode, another memory size).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")
"""Number types that the catalogue knows, wide to narrow."""

GENERIC_NAMES = frozenset({"", "amd radeon graphics", "radeon graphics"})
"""What drivers report when they do not know the product (ROCm, above all in containers)."""

_VENDOR_WORDS = re.compile(r"\b(nvidia|amd|instinct|tesla|geforce|google|aws|gpu)\b")
_MEMORY_SHARE_MIN = 0.90
_MEMORY_SHARE_MAX = 1.01
_CORE_KINDS = {"NVIDIA": "SM", "AMD": "CU", "Google": "TensorCore", "AWS": "NeuronCore"}
_SERVER = "a property of the server, not of this part"


@dataclass(frozen=True, slots=True)
class Source:
    """The document that a number comes from."""

    title: str
    """Title as printed, with the version where there is one."""
    date: str
    """Year and month of the edition."""
    compared: str | None
    """Year and month when the main numbers were held against a copy, or a page that states them."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator: dense peaks, memory, links, and where each number comes from."""

    key: str
    """Stable identifier, e.g. `h100-sxm5-80gb`."""
    name: str
    """Product name for people."""
    vendor: str
    """NVIDIA, AMD, Google or AWS."""
    unit: str
    """What one record is: a GPU, one GCD of a package, a whole package, a chip."""
    peak_flops: Mapping[str, float] = field(hash=False)
    """Dense operations per second by type of `DTYPES` (multiply and add count as two)."""
    memory_bytes: int
    """Nominal memory size; a device reports up to a tenth less."""
    memory_bytes_per_s: float
    """Peak memory bandwidth, reads and writes together."""
    num_cores: int
    """Number of SMs, CUs, TensorCores or NeuronCores."""
    core_kind: str
    """What `num_cores` counts."""
    scale_up: str | None
    """The link to peers (NVLink, xGMI, ICI, NeuronLink); None: peers talk over PCIe."""
    scale_up_bytes_per_s: float | None
    """Bytes per second that one device can send, one direction, all links; None: none or not stated."""
    scale_out: str
    """The network link, or the statement that it belongs to the server."""
    scale_out_bytes_per_s: float | None
    """Network bytes per second in one direction; None: a property of the server."""
    unique_shape: bool
    """Whether memory size and core count alone name this part."""
    note: str | None
    """What a reader of the numbers must know."""
    source: Source
    """Document of every number without an entry in `other_sources`."""
    other_sources: Mapping[str, Source] = field(hash=False)
    """Documents of single fields: a type of `DTYPES`, `memory`, `cores`, `scale_up`, `scale_out`."""
    patterns: tuple[str, ...] = field(repr=False)
    """Regular expressions that match a whole normalised device name."""
    resolved_by: str | None = None
    """How a lookup found this part: `name`, `name and memory`, `memory and core count`, ...; else None."""

    def peak(self, dtype: str) -> float | None:
        """Dense peak operations per second for `dtype`; None when the part has none or none is stated."""
        return self.peak_flops.get(dtype)

    def source_of(self, what: str) -> Source:
        """The document behind a dtype, `memory`, `cores`, `scale_up` or `scale_out`."""
        return self.other_sources.get(what, self.source)


def find_hardware(
    name: str | None, memory_bytes: int | None = None, num_sms: int | None = None
) -> Hardware | None:
    """The one part that a device name, as a trace carries it, can mean; None when unknown or ambiguous.

    `memory_bytes` and `num_sms` are what the device reported (Kineto `totalGlobalMem` and `numSms`).
    They decide between parts of one name, and a part they contradict is no match. A name in
    `GENERIC_NAMES` is resolved by both together, where no other known part has the same two.
    """
    found = find_candidates(name, memory_bytes, num_sms)
    return found[0] if len(found) == 1 else None


def find_candidates(
    name: str | None, memory_bytes: int | None = None, num_sms: int | None = None
) -> tuple[Hardware, ...]:
    """Every part that the name and the reported sizes allow, each with `resolved_by`; may be empty.

    For reports: `MI210 or one GCD of an MI250` says more than `unknown`.
    """
    lowered = _collapse((name or "").lower())
    generic = lowered in GENERIC_NAMES
    if generic:
        if memory_bytes is None or num_sms is None:
            return ()
        named = tuple(load_catalogue().values())
    else:
        normal = _collapse(_VENDOR_WORDS.sub(" ", lowered))
        named = tuple(hw for hw in load_catalogue().values() if _name_fits(hw, normal))
    fitting = tuple(
        hw
        for hw in named
        if (memory_bytes is None or _memory_fits(hw, memory_bytes))
        and (num_sms is None or hw.num_cores == num_sms)
    )
    if generic and len(fitting) == 1 and not fitting[0].unique_shape:
        # Parts outside the catalogue share this shape: one match here is not one match in the world.
        return ()
    how = _resolution(generic, named, memory_bytes, num_sms)
    return tuple(replace(hw, resolved_by=how) for hw in fitting)


@cache
def load_catalogue() -> Mapping[str, Hardware]:
    """All parts by key, in the order of the file. The TOML is read once per process."""
    import tomllib
    from importlib.resources import files

    data = tomllib.loads(files(__package__).joinpath("hardware.toml").read_text("utf-8"))
    sources = {
        key: Source(entry["title"], entry["date"], entry.get("compared"))
        for key, entry in data["source"].items()
    }
    return MappingProxyType(
        {key: _read_device(key, entry, sources) for key, entry in data["device"].items()}
    )


def render_page() -> str:
    """The text of docs/hardware.md."""
    parts = load_catalogue().values()
    lines = [
        "# Hardware catalogue",
        "",
        "Generated by `python -m tokenpath.core.hardware > docs/hardware.md`; a test keeps it true.",
        "The numbers are kept in `src/tokenpath/core/hardware.toml`.",
        "",
        "Peaks are dense tera-operations per second with 32-bit accumulation, never the figure with",
        "sparsity. A dash: the part has no such unit, or its vendor states no number. Memory is nominal",
        "(GiB), bandwidths are 10^9 bytes per second; scale-up is what one device can send in one",
        "direction over all links (vendors print both directions summed). Scale-out is stated only where",
        "the network port is part of the chip; elsewhere it is a property of the server.",
        "",
        "| part | "
        + " | ".join(DTYPES)
        + " | GiB | memory GB/s | cores | scale-up GB/s | scale-out GB/s |",
        "|---|" + "---:|" * (len(DTYPES) + 5),
    ]
    for hw in parts:
        peaks = [_cell(hw.peak(dtype), 1e12) for dtype in DTYPES]
        row = [
            *peaks,
            str(hw.memory_bytes >> 30),
            _cell(hw.memory_bytes_per_s, 1e9),
            f"{hw.num_cores} {hw.core_kind}",
            _cell(hw.scale_up_bytes_per_s, 1e9),
            _cell(hw.scale_out_bytes_per_s, 1e9),
        ]
        lines.append(f"| {hw.name} | " + " | ".join(row) + " |")
    lines += ["", "## Units, links, notes and sources", ""]
    for hw in parts:
        lines.append(f"### {hw.name}")
        lines += ["", f"- key `{hw.key}`; one record is {hw.unit}"]
        lines.append(f"- scale-up: {hw.scale_up or 'none; peers talk over PCIe, ' + _SERVER}")
        lines.append(f"- scale-out: {hw.scale_out}")
        if hw.note is not None:
            lines.append(f"- note: {hw.note}")
        lines.append(f"- source: {_cite(hw.source)}")
        lines += [f"- source of {what}: {_cite(src)}" for what, src in hw.other_sources.items()]
        lines.append("")
    return "\n".join(lines)


def main() -> int:
    """Print the page."""
    sys.stdout.write(render_page())
    return 0


def _read_device(key: str, entry: dict[str, Any], sources: Mapping[str, Source]) -> Hardware:
    vendor = str(entry["name"]).split(" ", 1)[0]
    size, up, out = entry["size"], entry.get("scale_up", {}), entry.get("scale_out", {})
    unknown = set(entry["peak_tflops"]) - set(DTYPES)
    if unknown:
        raise ValueError(f"hardware.toml: {key} has peaks of unknown types {sorted(unknown)}")
    return Hardware(
        key=key,
        name=entry["name"],
        vendor=vendor,
        unit=entry.get("unit", "one GPU" if vendor in ("NVIDIA", "AMD") else "one chip"),
        # Rounded so that 66.9e12 is the integer that was printed and not 66.900000000000006e12.
        # Plain dicts: a mapping proxy cannot be sent to a worker process.
        peak_flops={
            dtype: float(round(tera * 1e12)) for dtype, tera in entry["peak_tflops"].items()
        },
        memory_bytes=size["memory_gib"] << 30,
        memory_bytes_per_s=float(round(size["memory_gb_per_s"] * 1e9)),
        num_cores=size["cores"],
        core_kind=_CORE_KINDS[vendor],
        scale_up=up.get("link"),
        scale_up_bytes_per_s=_giga(up.get("gb_per_s")),
        scale_out=out.get("link", _SERVER),
        scale_out_bytes_per_s=_giga(out.get("gb_per_s")),
        unique_shape=entry.get("unique_shape", False),
        note=entry.get("note"),
        source=sources[entry["source"]],
        other_sources={what: sources[doc] for what, doc in entry.get("sources", {}).items()},
        patterns=tuple(entry["names"]),
    )


def _giga(value: float | None) -> float | None:
    return None if value is None else float(round(value * 1e9))


def _collapse(text: str) -> str:
    return " ".join(text.split())


def _name_fits(hw: Hardware, normal: str) -> bool:
    # A catalogue key is a name too: `--gpu h100-sxm5-80gb`.
    return normal == hw.key or any(re.fullmatch(pattern, normal) for pattern in hw.patterns)


def _memory_fits(hw: Hardware, memory_bytes: int) -> bool:
    return _MEMORY_SHARE_MIN <= memory_bytes / hw.memory_bytes <= _MEMORY_SHARE_MAX


def _resolution(
    generic: bool, named: tuple[Hardware, ...], memory_bytes: int | None, num_sms: int | None
) -> str:
    """What the result rests on; sizes count only where they had to decide."""
    if generic:
        return "memory and core count"
    used = ["name"]
    if len(named) > 1 and memory_bytes is not None:
        if not all(_memory_fits(hw, memory_bytes) for hw in named):
            used.append("memory")
        named = tuple(hw for hw in named if _memory_fits(hw, memory_bytes))
    if len(named) > 1 and num_sms is not None and any(hw.num_cores != num_sms for hw in named):
        used.append("core count")
    return " and ".join(used)


def _cell(value: float | None, scale: float) -> str:
    return "-" if value is None else f"{value / scale:,.10g}"


def _cite(source: Source) -> str:
    compared = f", compared {source.compared}" if source.compared else ""
    return f"{source.title} ({source.date}{compared})"


if __name__ == "__main__":
    raise SystemExit(main())
