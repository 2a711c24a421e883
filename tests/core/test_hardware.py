"""The hardware catalogue: what the numbers must obey, and which names find which part."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenpath.core.hardware import (
    DTYPES,
    Hardware,
    find_candidates,
    find_hardware,
    load_catalogue,
    render_page,
)

PAGE = Path(__file__).parents[2] / "docs" / "hardware.md"
PARTS = list(load_catalogue().values())

REQUIRED = {
    *("a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb"),
    *("h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl-94gb", "h200-sxm-141gb", "h800-sxm5-80gb"),
    *("h20-96gb", "b200-180gb", "gb200-186gb", "l4", "l40s", "a10", "a10g", "t4", "rtx-4090"),
    *("v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb"),
    *("rtx-pro-6000-workstation", "mi210", "mi250-gcd", "mi250-package", "mi250x-gcd"),
    *("mi250x-package", "mi300x", "mi325x", "mi355x", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e"),
    *("trainium1", "trainium2"),
}

# (name, reported memory, reported core count) as trace files carry them -> (key, resolved by)
FROM_TRACES = [
    ("NVIDIA A100-PG509-200", 42_297_524_224, 108, "a100-sxm4-40gb", "name"),
    ("NVIDIA A100-PG509-200", 42_505_273_344, 108, "a100-sxm4-40gb", "name"),
    ("NVIDIA A100-SXM4-80GB", 84_990_623_744, 108, "a100-sxm4-80gb", "name"),
    ("NVIDIA H100 80GB HBM3", 85_018_279_936, 132, "h100-sxm5-80gb", "name"),
    ("NVIDIA H800", 84_943_110_144, 132, "h800-sxm5-80gb", "name"),
    ("Tesla V100-DGXS-32GB", 34_084_028_416, 80, "v100-dgxs-32gb", "name"),
    ("Tesla V100-SXM2-16GB", 16_945_512_448, 80, "v100-sxm2-16gb", "name"),
    ("Tesla V100-SXM2-32GB", 34_079_637_504, 80, "v100-sxm2-32gb", "name"),
    ("AMD Instinct MI210", 68_702_699_520, 104, "mi210", "name"),
    ("AMD Instinct MI300X", 206_141_652_992, 304, "mi300x", "name"),
    ("AMD Instinct MI300X VF", 206_141_652_992, 304, "mi300x", "name"),
    ("", 206_141_652_992, 304, "mi300x", "memory and core count"),
    ("AMD Radeon Graphics", 274_861_129_728, 304, "mi325x", "memory and core count"),
    ("AMD Radeon Graphics", 68_702_699_520, 110, "mi250x-gcd", "memory and core count"),
    ("NVIDIA H100", 85_018_279_936, 114, "h100-pcie-80gb", "name and memory and core count"),
    ("AMD Instinct MI250X / MI250", 68_702_699_520, 104, "mi250-gcd", "name and core count"),
    ("AMD Instinct MI250X", 68_702_699_520, 110, "mi250x-gcd", "name and memory"),
    # Names without sizes.
    ("NVIDIA H100 PCIe", None, None, "h100-pcie-80gb", "name"),
    ("NVIDIA H100 NVL", None, None, "h100-nvl-94gb", "name"),
    ("NVIDIA H200", None, None, "h200-sxm-141gb", "name"),
    ("NVIDIA B200", None, None, "b200-180gb", "name"),
    ("NVIDIA GB200", None, None, "gb200-186gb", "name"),
    ("NVIDIA L40S", None, None, "l40s", "name"),
    ("NVIDIA A10G", None, None, "a10g", "name"),
    ("Tesla T4", None, None, "t4", "name"),
    ("NVIDIA GeForce RTX 4090", None, None, "rtx-4090", "name"),
    ("NVIDIA A100 80GB PCIe", None, None, "a100-pcie-80gb", "name"),
    ("NVIDIA A100-PCIE-40GB", None, None, "a100-pcie-40gb", "name"),
    (
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        None,
        None,
        "rtx-pro-6000-max-q",
        "name",
    ),
    ("TPU v6 Lite", None, None, "tpu-v6e", "name"),
    ("TPU v5 lite", None, None, "tpu-v5e", "name"),
    ("TPU v5", None, None, "tpu-v5p", "name"),
    ("TPU v4", None, None, "tpu-v4", "name"),
    ("trn2", None, None, "trainium2", "name"),
]

UNKNOWN = [
    ("", None, None),  # nothing to go by
    (None, 206_141_652_992, None),  # one size is not a shape
    ("AMD Radeon Graphics", 68_702_699_520, 104),  # MI210 or one GCD of an MI250
    ("", 309_220_868_096, 256),  # MI355X, or the MI350X that is not in the catalogue
    ("", 85_018_279_936, 132),  # H100 or H800
    ("NVIDIA H100", 102_085_492_736, 132),  # a 96 GB part made for one operator
    ("NVIDIA H100", None, None),  # three parts
    ("A100", 85_000_000_000, 108),  # SXM or PCIe
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10_000_000_000, 16),
    ("NVIDIA H100 80GB HBM3", 10_000_000_000, 16),  # a slice under the whole part's name
    ("AMD Instinct MI300X", 206_141_652_992, 38),  # one partition of eight
    ("AMD Instinct MI250X", None, None),  # a GCD or a package
    ("NVIDIA RTX PRO 6000 Blackwell", None, None),  # three editions
    ("NVIDIA GeForce RTX 2080 Ti", 11_554_586_624, 68),  # not in the catalogue
    ("NVIDIA L40", None, None),  # a prefix of a known name
]


def test_every_required_part_is_there() -> None:
    assert set(load_catalogue()) >= REQUIRED


@pytest.mark.parametrize(("name", "memory", "cores", "key", "resolved_by"), FROM_TRACES)
def test_names_that_traces_carry(
    name: str, memory: int | None, cores: int | None, key: str, resolved_by: str
) -> None:
    found = find_hardware(name, memory, cores)
    assert found is not None
    assert (found.key, found.resolved_by) == (key, resolved_by)


@pytest.mark.parametrize(("name", "memory", "cores"), UNKNOWN)
def test_unknown_or_ambiguous_is_none(
    name: str | None, memory: int | None, cores: int | None
) -> None:
    assert find_hardware(name, memory, cores) is None


def test_candidates_name_what_an_ambiguous_shape_can_be() -> None:
    found = find_candidates("AMD Radeon Graphics", 68_702_699_520, 104)
    assert [hw.key for hw in found] == ["mi210", "mi250-gcd"]


@given(st.text(max_size=40))
def test_any_text_gives_a_known_part_or_none(name: str) -> None:
    found = find_hardware(name)
    assert found is None or found.key in load_catalogue()


@pytest.mark.parametrize("hw", PARTS, ids=lambda hw: hw.key)
def test_every_part_obeys_the_laws(hw: Hardware) -> None:
    assert find_hardware(hw.key) is not None, "a key is a name"
    assert hw.peak_flops, "no part is without a peak"
    assert set(hw.peak_flops) <= set(DTYPES)
    # Fewer bits are never slower, except FP32 on the vector units of some parts.
    for wide, narrow in (("tf32", "bf16"), ("bf16", "fp8"), ("bf16", "int8"), ("fp8", "fp4")):
        a, b = hw.peak(wide), hw.peak(narrow)
        assert a is None or b is None or b >= a, (wide, narrow)
    for dtype in ("bf16", "fp16"):
        half, eight_bit = hw.peak(dtype), hw.peak("fp8")
        # Twice per halving is the dense ratio; a sparse number slipped in would make it four.
        assert half is None or eight_bit is None or eight_bit <= 2.05 * half
    balance = max(hw.peak_flops.values()) / hw.memory_bytes_per_s
    assert 20 < balance < 2500, "FLOP per byte far outside of any part ever built: a wrong unit"
    assert 1 <= hw.memory_bytes / 2**30 <= 300
    for src in (hw.source, *hw.other_sources.values()):
        assert src.title
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", src.date)
    assert set(hw.other_sources) <= {*DTYPES, "memory", "cores", "scale_up", "scale_out"}
    assert (hw.scale_up_bytes_per_s is None) or hw.scale_up is not None
    if hw.scale_out_bytes_per_s is None:
        assert "server" in hw.scale_out


@pytest.mark.parametrize("chip", ["mi250", "mi250x"])
def test_a_package_is_two_dies(chip: str) -> None:
    die, package = load_catalogue()[f"{chip}-gcd"], load_catalogue()[f"{chip}-package"]
    assert package.memory_bytes == 2 * die.memory_bytes
    assert package.num_cores == 2 * die.num_cores
    assert {d: 2 * v for d, v in die.peak_flops.items()} == pytest.approx(dict(package.peak_flops))


# Peaks from clocks and unit counts, independent of any datasheet: cores x operations per clock x boost.
@pytest.mark.parametrize(
    ("key", "dtype", "ops_per_core_clock", "clock_ghz"),
    [
        ("a100-sxm4-80gb", "bf16", 2048, 1.410),
        ("h100-sxm5-80gb", "bf16", 4096, 1.830),
        ("h100-pcie-80gb", "fp8", 8192, 1.620),
        ("v100-sxm2-32gb", "fp16", 1024, 1.530),
        ("t4", "int8", 2048, 1.590),
        ("l4", "fp8", 2048, 2.040),
        ("l40s", "bf16", 1024, 2.490),
        ("a10", "bf16", 1024, 1.695),
        ("rtx-4090", "bf16", 512, 2.520),
        ("rtx-pro-6000-workstation", "fp4", 4096, 2.617),
        ("mi210", "fp16", 1024, 1.700),
        ("mi250x-gcd", "fp16", 1024, 1.700),
        ("mi300x", "fp16", 2048, 2.100),
        ("mi300x", "fp8", 4096, 2.100),
        ("mi355x", "fp8", 8192, 2.400),
        ("mi355x", "fp4", 16384, 2.400),
    ],
)
def test_peaks_agree_with_clock_times_units(
    key: str, dtype: str, ops_per_core_clock: int, clock_ghz: float
) -> None:
    hw = load_catalogue()[key]
    assert hw.peak(dtype) == pytest.approx(
        hw.num_cores * ops_per_core_clock * clock_ghz * 1e9, rel=0.015
    )


def test_what_a_part_lacks_is_none() -> None:
    catalogue = load_catalogue()
    assert catalogue["a100-sxm4-80gb"].peak("fp8") is None
    assert catalogue["h100-sxm5-80gb"].peak("fp4") is None
    assert catalogue["t4"].peak("bf16") is None
    assert catalogue["l4"].scale_up_bytes_per_s is None
    assert catalogue["v100-sxm2-32gb"].source_of("fp16").title.startswith("NVIDIA V100")
    assert catalogue["gb200-186gb"].source_of("cores") != catalogue["gb200-186gb"].source


def test_a_part_can_be_sent_to_another_process_and_hashed() -> None:
    hw = find_hardware("NVIDIA L40S")
    assert pickle.loads(pickle.dumps(hw)) == hw
    assert {hw}


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render_page(), (
        "run `python -m tokenpath.core.hardware > docs/hardware.md`"
    )


def test_importing_reads_nothing() -> None:
    code = (
        "import sys, tokenpath.core.hardware as h;"
        "assert 'tomllib' not in sys.modules and h.load_catalogue.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
