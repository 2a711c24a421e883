"""The texts in which XLA packs facts, and what HLO words say of the work."""

from __future__ import annotations

import pytest

from tokenpath.ingest.xla.details import (
    ArrayShape,
    KernelDetails,
    read_copied_bytes,
    read_kernel_details,
    read_shape,
)
from tokenpath.ingest.xla.families import of_gpu, of_hlo
from tokenpath.ingest.xla.trace_json import _picoseconds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "regs:32 static_shared:16 dynamic_shared:48 grid:4,2,1 block:128,1,1 occ_pct:62.5",
            KernelDetails((4, 2, 1), (128, 1, 1), 32, 64, 62.5),
        ),
        (
            "regs:38 shm:0 grid:160,1,1 block:1024,1,1",
            KernelDetails((160, 1, 1), (1024, 1, 1), 38, 0),
        ),
        (
            " grid:16,1,1 block:512,1,1 private_mem:0 group_mem:2112 occ_pct:0",
            KernelDetails((16, 1, 1), (512, 1, 1), None, 2112),
        ),
        ("", KernelDetails()),
        ("grid:1,2 block:a,b,c regs:x occ_pct:1.2.3", KernelDetails()),
        ("grid:99999999999999,1,1 occ_pct:5000", KernelDetails()),
    ],
)
def test_kernel_details(text: str, found: KernelDetails) -> None:
    assert read_kernel_details(text) == found


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("size:112 dest:4 async:0", 112),
        ("kind_src:pageable kind_dst:device size:5368709120 dest:0 async:1", 5368709120),
        ("num_bytes:64 kind:x", 64),
        ("kind:Unknown size:0 dest:512 async:1", None),
        ("size:" + "9" * 40, None),
        ("", None),
    ],
)
def test_copied_bytes(text: str, num_bytes: int | None) -> None:
    assert read_copied_bytes(text) == num_bytes


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("f32[5,1024]{1,0:T(8,128)}", ArrayShape("f32", 20480)),
        ("(bf16[2,3]{1,0}, s8[4])", ArrayShape("bf16", 16)),
        ("s4[3]", ArrayShape("s4", 2)),
        ("pred[]", ArrayShape("pred", 1)),
        ("token[]", None),
        ("f32[99999999999,99999999999,99999999999]", None),
        ("no shape", None),
    ],
)
def test_shapes(text: str, shape: ArrayShape | None) -> None:
    assert read_shape(text) == shape


@pytest.mark.parametrize(
    ("name", "category", "operator", "kind", "family", "collective"),
    [
        ("dot.1", None, None, "compute", "gemm", None),
        ("convolution.5", "convolution", None, "compute", "convolution", None),
        (
            "fusion.3",
            "convolution fusion",
            "jit(f)/jit(main)/dot_general:",
            "compute",
            "gemm",
            None,
        ),
        ("fusion.3", "convolution fusion", None, "compute", "convolution", None),
        ("fusion.3", "loop fusion", "jit(f)/jit(main)/add:", "compute", "elementwise", None),
        ("fusion.3", "loop fusion", None, "compute", "other", None),
        ("fusion.3", None, None, "compute", "other", None),
        ("all-reduce.1", None, None, "communication", "communication", "allreduce"),
        ("all-gather-start.2", None, None, "communication", "communication", None),
        ("x.1", "all-gather-done", None, "communication", "communication", "allgather"),
        ("copy-done.4", "copy-done", None, "memcpy", "memcpy", None),
        ("copy.1", "data formatting", None, "compute", "copy", None),
        ("custom-call.9", "custom-call", None, "compute", "other", None),
    ],
)
def test_work_of_an_instruction(
    name: str,
    category: str | None,
    operator: str | None,
    kind: str,
    family: str,
    collective: str | None,
) -> None:
    work = of_hlo(name, category, operator)
    assert (work.kind, work.family, work.collective) == (kind, family, collective)


def test_work_of_a_gpu() -> None:
    assert of_gpu("MemcpyD2H", None, None).kind == "memcpy"
    assert of_gpu("Memset", None, None).kind == "memset"
    nccl = of_gpu("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "all-reduce.1", None)
    assert (nccl.kind, nccl.collective) == ("communication", "allreduce")
    assert of_gpu("what_is_it", "dot.3", None).family == "gemm"
    assert of_gpu("what_is_it", None, "layer/dropout/Mul:Mul").family == "elementwise"
    assert of_gpu("what_is_it", None, None).family == "other"


@pytest.mark.parametrize(
    ("written", "picoseconds"),
    [
        ("97562857.116672", 97562857116672),
        ("2e-06", 2),
        (0, 0),
        (7, 7_000_000),
        ("1e999999", None),
        ("nan", None),
        ("-1.5", -1_500_000),
        (None, None),
        (True, None),
        ("0e99", 0),
    ],
)
def test_microseconds_are_read_exactly(written: object, picoseconds: int | None) -> None:
    assert _picoseconds(written) == picoseconds
