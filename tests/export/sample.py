"""A report with the numbers of the sketch in the design, and others that renderers must survive."""

from __future__ import annotations

import math
from dataclasses import replace

from tokenpath.core.finding import Evidence, Finding, Kind, Status
from tokenpath.core.report import (
    Funnel,
    FunnelRow,
    Note,
    Report,
    Severity,
    ShownTable,
    TableColumn,
    Timeline,
    TimelineLane,
    Trust,
    Unit,
    Window,
)

MS = 1_000_000
ATTENTION_NAME = (
    "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, "
    "cutlass::bfloat16_t, Flash_kernel_traits<128, 64, 128, 4, cutlass::bfloat16_t> >, false, false, "
    "false, false, true, true, false, false>(Flash_fwd_params)"
)


def funnel() -> Funnel:
    """The funnel of the sketch, completed so that it closes."""
    rows = [
        FunnelRow("wall", "wall", 0, 261_900_000),
        FunnelRow("busy", "busy", 1, 233_410_000),
        FunnelRow("attention", "attention", 2, 96_020_000),
        FunnelRow("gemm", "gemm", 2, 81_350_000),
        FunnelRow("norm", "norm", 2, 14_480_137),
        FunnelRow("elementwise", "elementwise", 2, 9_906_000),
        FunnelRow("sampling", "sampling", 2, 7_349_863),
        FunnelRow("communication", "communication", 2, 24_200_000, "exposed 24.20"),
        FunnelRow("memcpy", "memcpy", 2, 104_000, "exposed 0.10"),
        FunnelRow("overlapped", "overlapped", 2, 3_110_000, "ran under compute", is_part=False),
        FunnelRow("idle", "idle", 1, 28_490_000),
        FunnelRow(
            "host_not_ready",
            "host not ready",
            2,
            21_870_000,
            "in 1,934 gaps, p50 9.1 us, after: aten::copy_, sampler",
        ),
        FunnelRow("launch_latency", "launch latency", 2, 4_120_000, "in 812 gaps, p50 4.6 us"),
        FunnelRow("inside_graph", "gap inside a graph", 2, 2_499_996),
        FunnelRow("unattributed", "unattributed", 2, 4),
    ]
    return Funnel("total", rows)


def findings() -> list[Finding]:
    """One with an interval, one ceiling, one estimate, one abstention."""
    return [
        Finding(
            code="launch-bound",
            sentence="812 launches a step at 5.1 us each; 97 % of the gaps end with a late launch.",
            kind=Kind.COST,
            value=812.0,
            unit="launches/step",
            duration_ns=21_870_000,
            share=21_870_000 / 261_900_000,
            gain_ns=21_400_000,
            gain_method="replayed",
            gain_interval_ns=(20_300_000, 22_500_000),
            status=Status.MEASURED,
            evidence=[Evidence("kernel", (812, 4051, 77), 1_934, "idle.cause = 'host_not_ready'")],
            falsifier="a replay with launches at 0 us that leaves the wall where it is",
            fix="capture decode in CUDA graphs (vLLM: leave out --enforce-eager)",
            details={"launches_per_step": 812, "share_late": 0.97},
        ),
        Finding(
            code="exposed-communication",
            sentence="All-reduce runs alone for 3.9 ms; nothing else is on the device then.",
            kind=Kind.COST,
            value=3.9,
            unit="ms",
            duration_ns=24_200_000,
            share=24_200_000 / 261_900_000,
            gain_ns=3_900_000,
            gain_method="ceiling",
            status=Status.MEASURED,
            evidence=[Evidence("kernel", (5, 9), 1_536)],
            falsifier="compute kernels on another stream during the all-reduce",
            fix="use the custom all-reduce below 512 KiB",
            scope="device 0",
        ),
        Finding(
            code="small-kernels",
            sentence="2,304 kernels below 3 us could be fused into their producers.",
            kind=Kind.COST,
            value=None,
            unit=None,
            duration_ns=5_100_000,
            share=5_100_000 / 261_900_000,
            gain_ns=1_200_000,
            gain_method="estimated",
            status=Status.ESTIMATED,
            evidence=[Evidence("kernel", (), 2_304)],
            falsifier="torch.compile of the same layer that is no faster",
            fix="torch.compile the decode step",
        ),
        Finding(
            code="clock-throttling",
            sentence="Cannot tell whether clocks were lowered: the capture has no SM clock counter.",
            kind=Kind.ABSTENTION,
            value=None,
            unit=None,
            duration_ns=None,
            share=None,
            gain_ns=None,
            gain_method=None,
            status=Status.MEASURED,
            fix="record nvidia-smi --query-gpu=clocks.sm beside the trace",
        ),
    ]


KERNEL_COLUMNS = [
    TableColumn("name", "kernel", Unit.TEXT),
    TableColumn("family", "family", Unit.TEXT, is_key_figure=False),
    TableColumn("num_calls", "count", Unit.COUNT),
    TableColumn("total_ns", "total", Unit.NS),
    TableColumn("share", "share", Unit.SHARE),
    TableColumn("mean_ns", "mean", Unit.NS),
    TableColumn("p50_ns", "p50", Unit.NS, is_key_figure=False),
    TableColumn("p99_ns", "p99", Unit.NS),
    TableColumn("occupancy_percent", "occupancy", Unit.PERCENT, is_key_figure=False),
    TableColumn("mean_launch_delay_ns", "launch delay", Unit.NS, is_key_figure=False),
]

_KERNELS = [
    (ATTENTION_NAME, "attention_decode", 768, 96_020_000, 41.0),
    ("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_TNN", "gemm", 3_072, 81_350_000, 22.0),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication",
     1_536, 24_200_000, None),
    ("void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*)", "norm",
     1_560, 14_480_137, 63.5),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
     "elementwise", 4_608, 9_906_000, 75.0),
    ("triton_red_fused__to_copy_argmax_0", "sampling", 24, 7_349_863, 12.5),
    ("Memcpy DtoH (Device -> Pageable)", "memcpy", 24, 104_000, None),
]  # fmt: skip


def kernel_table(num_rows: int | None = None) -> ShownTable:
    """The kernels of the sketch; `num_rows` repeats them into a long table."""
    count = len(_KERNELS) if num_rows is None else num_rows
    rows = []
    for index in range(count):
        name, family, calls, total, occupancy = _KERNELS[index % len(_KERNELS)]
        repeat = index // len(_KERNELS)
        total = total // (repeat + 1)
        mean = total / calls
        rows.append(
            (f"{name}_{repeat}" if repeat else name, family, calls, total, total / 233_410_000, mean,
             int(mean * 0.97), int(mean * 1.9), occupancy, 5_100 + 40 * index)
        )  # fmt: skip
    return ShownTable("kernels", "kernels", KERNEL_COLUMNS, rows, max(count, 41))


def idle_table() -> ShownTable:
    """Causes of idle time."""
    columns = [
        TableColumn("cause", "cause", Unit.TEXT),
        TableColumn("host_doing", "the host was in", Unit.TEXT),
        TableColumn("num_gaps", "gaps", Unit.COUNT),
        TableColumn("total_ns", "total", Unit.NS),
        TableColumn("share", "of idle", Unit.SHARE),
        TableColumn("p50_ns", "p50", Unit.NS, is_key_figure=False),
        TableColumn("worst_ns", "worst", Unit.NS),
    ]
    rows = [
        ("host not ready", "aten::copy_", 1_102, 12_400_000, 12.4 / 28.49, 9_100, 412_000),
        ("host not ready", "sampler (python)", 832, 9_470_000, 9.47 / 28.49, 9_050, 1_204_113),
        ("launch latency", None, 812, 4_120_000, 4.12 / 28.49, 4_600, 21_000),
        ("gap inside a graph", None, 2_210, 2_499_996, 2.5 / 28.49, 1_020, 3_300),
        ("unattributed", None, 1, 4, 4 / 28_490_000, 4, 4),
    ]
    note = "Every gap has one cause: the last thing that the kernel after it waited for."
    return ShownTable("idle_causes", "idle causes", columns, rows, 5, note)


def host_table() -> ShownTable:
    """Host calls by self time."""
    columns = [
        TableColumn("name", "call", Unit.TEXT),
        TableColumn("kind", "kind", Unit.TEXT, is_key_figure=False),
        TableColumn("num_calls", "count", Unit.COUNT),
        TableColumn("self_ns", "self", Unit.NS),
        TableColumn("calls_per_s", "rate", Unit.PER_S),
        TableColumn("synchronises", "syncs", Unit.TEXT),
    ]
    rows = [
        ("cudaLaunchKernel", "api_call", 19_488, 99_388_800, 74_410.1, False),
        ("aten::copy_", "op", 1_102, 31_020_000, 4_207.7, True),
        ("cudaMemcpyAsync", "api_call", 24, 20_480_000, 91.6, True),
    ]
    return ShownTable("host", "host calls", columns, rows, 3)


def timeline(num_bins: int = 400, num_lanes: int = 1) -> Timeline:
    """A decode loop: 24 steps of attention, gemm and all-reduce with a gap after each."""
    start, end = 1_700_000_000_000_000_000, 1_700_000_000_300_000_000
    width = (end - start) // num_bins
    categories = ["compute", "communication", "memcpy"]
    lanes = []
    for lane in range(num_lanes):
        rows: list[list[int]] = [[], [], []]
        for index in range(num_bins):
            phase = math.sin(index * 24 * 2 * math.pi / num_bins + lane)
            outside = index < num_bins * 0.06 or index > num_bins * 0.93
            busy = 0.35 if outside else 0.9 if phase > -0.8 else 0.42
            rows[0].append(int(width * busy * 0.88))
            rows[1].append(int(width * busy * (0.12 if phase > 0.5 else 0.04)))
            rows[2].append(int(width * 0.05) if index % 50 == 7 else 0)
        lanes.append(TimelineLane(f"GPU {lane}", categories, rows))
    return Timeline(start, end, start + 19_000_000, start + 280_900_000, lanes)


def report() -> Report:
    """The sample of every test."""
    start = 1_700_000_000_019_000_000
    return Report(
        verb="explain",
        headline="vLLM decode · 1 x NVIDIA H100 80GB HBM3 · 24 steps, 261.90 ms · capture: good, 2 notes",
        answer=[
            "The GPU waited 10.9 % of the time, nearly all of it for the host to launch the next kernel.",
            (
                "Capturing decode in CUDA graphs would bring back about 21 ms (8 %); nothing else "
                "here is worth more than 2 %."
            ),
        ],
        trust=Trust.GOOD,
        window=Window(
            start, start + 261_900_000, "steps 2 to 25", "steady state: warm-up left out"
        ),
        funnel=funnel(),
        findings=findings(),
        dismissed=["memcpy (0.1 ms)", "elementwise fusion (0.4 ms, below noise)"],
        notes=[
            Note(
                "same-stream-overlap",
                Severity.INFO,
                "148 same-stream overlaps (programmatic dependent launch, 17 us)",
                {"num_overlaps": 148, "overlap_ns": 17_000},
            ),
            Note("launch-missing", Severity.WARNING, "509 kernels without a launch in the file"),
        ],
        tables=[idle_table(), kernel_table(), host_table()],
        timeline=timeline(),
        facts={
            "sources": [{"path": "rank0.json.gz", "format": "kineto", "num_events": 61_204}],
            "devices": [{"index": 0, "span_ns": 300_000_000, "busy_ns": 251_001_733}],
        },
    )


def with_devices(base: Report, num_devices: int) -> Report:
    """The same with one funnel a device."""
    funnels = [Funnel(f"GPU {index}", funnel().rows) for index in range(num_devices)]
    return replace(base, device_funnels=funnels, timeline=timeline(num_lanes=num_devices))


def empty_report() -> Report:
    """Nothing was found to explain."""
    return Report("explain", "no device work", [], Trust.GOOD, None, None, [], [], [])


def unusable_report() -> Report:
    """A capture that supports no verdict."""
    return Report(
        verb="explain",
        headline="PyTorch trace · 8 devices mixed · capture: unusable",
        answer=[
            "This capture cannot say where the time went: 61 % of its kernels end before they start."
        ],
        trust=Trust.UNUSABLE,
        window=None,
        funnel=None,
        findings=[],
        dismissed=[],
        notes=[
            Note(
                "end-before-start", Severity.WITHHELD, "61 % of the kernels end before they start"
            ),
            Note("no-host", Severity.WARNING, "no host side in the file"),
        ],
    )


HOSTILE = (
    "<script>document.title='owned'</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J",
    "abc\u202edcba\u2066x\u2069",
    "two\nlines\r\nand\ttab",
    "nul\x00 del\x7f sep\u2028par\u2029",
    "lone \ud800 surrogate",
    "漢字カーネル" * 20,
    "e\u0301" * 30,
    "[bold red]markup[/bold red] :smile: ${x} {{y}} %s",
    "k" * 5_000,
)


def hostile_report() -> Report:
    """Every text that comes from a file is an attack."""
    base = report()
    name = " ".join(HOSTILE[:10])
    rows = [
        (name, text, 1, 1_000_000 + i, 0.5, 1.0, 1, 1, None, None) for i, text in enumerate(HOSTILE)
    ]
    rows += [
        (text, "gemm", 1, 2_000_000 + i, 0.5, 1.0, 1, 1, None, None)
        for i, text in enumerate(HOSTILE)
    ]
    table = ShownTable("kernels", name, KERNEL_COLUMNS, rows, len(rows), name)
    funnel_rows = [FunnelRow("wall", "wall", 0, 10 * MS)] + [
        FunnelRow(f"k{i}", text, 1, 0 if i else 10 * MS, text[:300])
        for i, text in enumerate(HOSTILE)
    ]
    found = [replace(base.findings[0], sentence=text, fix=text, falsifier=text, scope=text[:40])
             for text in HOSTILE]  # fmt: skip
    return replace(
        base,
        headline=name,
        answer=list(HOSTILE),
        funnel=Funnel(name, funnel_rows),
        findings=found,
        dismissed=list(HOSTILE),
        notes=[Note("n", Severity.WARNING, text, {text[:50]: text}) for text in HOSTILE],
        tables=[table],
        facts={text[:60]: text for text in HOSTILE},
        timeline=replace(timeline(40), lanes=[TimelineLane(name, [name], [[1] * 40])]),
    )
