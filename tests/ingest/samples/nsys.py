"""Nsight Systems exports: SQLite, and a folder of Parquet files."""

from __future__ import annotations

from pathlib import Path

from ingest.nsys_export import MEMCPY, NsysExport
from ingest.samples import Sample


def small() -> NsysExport:
    export = NsysExport(epoch_ns=1_000_000)
    export.call("cudaLaunchKernel_v7000", 100, 10).kernel("gemm", 150, 20)
    export.call("cudaMemcpyAsync_v3020", 200, 10)
    export.work(MEMCPY, 220, 5, bytes=64, copyKind=1, srcKind=0, dstKind=2)
    export.nvtx("prefill", 90, 200).nvtx("aten::mm, seq = 3, op_id = 4", 95, 50)
    export.nvtx("never closed", 300, None)
    export.add("OSRT_API", start=1, end=2)
    return export.add("SOME_NEW_EVENTS", start=1)


EXPECT = {
    ("kernel", "name", "start_ns", "end_ns", "kind", "bytes"): [
        ("gemm", 1_000_150, 1_000_170, "compute", None),
        ("Memcpy HtoD (Pageable -> Device)", 1_000_220, 1_000_225, "memcpy", 64),
    ],
    ("api_call", "name", "start_ns"): [
        ("cudaLaunchKernel", 1_000_100),
        ("cudaMemcpyAsync", 1_000_200),
    ],
    ("range", "name", "start_ns", "end_ns"): [("prefill", 1_000_090, 1_000_290)],
    ("op", "name", "sequence"): [("aten::mm", 3)],
    ("source", "clock", "clock_offset_ns"): [("epoch", 1_000_000)],
}
SKIPPED = {
    "missing end": 1,
    "call of the operating system": 1,
    "row of a table that is not read": 1,
    "setting of the profiler or command line": 2,
}


def planted(folder: Path, secret: str) -> Path:
    export = NsysExport()
    export.call(secret, 1, 1).kernel(secret, 3, 1).nvtx(secret, 1, 5)
    export.nvtx(f"{secret}, op_id = 4", 1, 5).nvtx(f"{secret}, op_id = 4, sizes = [{secret}]", 1, 5)
    export.nvtx(None, 2, 1, textId=export.string(secret), domainId=3)
    export.nvtx(secret, 0, None, eventType=75, domainId=3)
    export.nvtx(secret, 0, None, eventType=39)
    export.add("PROCESSES", globalPid=export.rows["NVTX_EVENTS"][0]["globalTid"], name=secret)
    for name in ("Hostname", "DeviceEnvironment", "CpuDescription"):
        export.add("TARGET_INFO_SYSTEM_ENV", name=name, value=secret)
    for name in ("EXPORT_PRODUCT_VERSION", "EXPORT_USER"):
        export.add("META_DATA_EXPORT", name=name, value=secret)
    export.add("TARGET_INFO_GPU", id=0, name=secret)
    export.add("DIAGNOSTIC_EVENT", severity=3, text=secret)
    export.add("GPU_METRICS", timestamp=1, typeId=0, metricId=1, value=2)
    export.add("TARGET_INFO_GPU_METRICS", typeId=0, metricId=1, metricName=secret)
    return export.write(folder / "t.sqlite")


def many(folder: Path, num_events: int) -> Path:
    export = NsysExport()
    for number in range(num_events // 2):
        export.call("cudaLaunchKernel", 10 * number, 1).kernel("gemm", 10 * number + 5, 2)
    return export.write(folder / "t.sqlite")


SAMPLES = [
    Sample(
        "nsys sqlite",
        "nsys",
        lambda folder: small().write(folder / "t.sqlite"),
        EXPECT,
        SKIPPED,
        planted,
        many,
    ),
    Sample(
        "nsys folder",
        "nsys",
        lambda folder: small().write_folder(folder / "export"),
        EXPECT,
        SKIPPED,
        planted,
    ),
]
