"""Every Kineto file of the reference data: whole-file numbers equal to the nanosecond.

`reference_numbers.json` comes from an independent calculator; its definitions are those of the glossary,
except for its name rule for communication, whose two known differences are stated here exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from captures import Explained, explained

pytestmark = pytest.mark.timeout(300)

DEEPSEEK = "deepseek/train.json.gz"
TRACEMAP = "vllm_tracemap/1_h100_1000isl_10osl_32con.pt.trace.json.gz"
MTIA = "hta/mtia_trace_single_rank/mtia_rank_0.json.gz"
DLRM = "param/dlrm_kineto_8ranks.tar.gz"

FILES = (
    "deepseek/train.json.gz",
    "hta/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "hta/critical_path/alexnet/benchmark_result_2869224_1695835535_trace.json.gz",
    "hta/critical_path/cuda_event_sync/event_sync_trace.json.gz",
    "hta/critical_path/cuda_event_sync_multi_stream/event_sync_trace.json.gz",
    "hta/critical_path/simple_add/benchmark_result_493459_1694039959_trace.json.gz",
    "hta/cupti_profiler/benchmark_result_924719_1679055439_trace.json.gz",
    "hta/df_index_resolver/df_index_resolver.json.gz",
    "hta/distributed_info_unavailable/distributed_info_not_found.json.gz",
    "hta/execution_trace/benchmark_simple_add_trace.json.gz",
    "hta/mtia_trace_single_rank/mtia_rank_0.json.gz",
    "hta/negative_queue_length_values_check/rank0.json.gz",
    "hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "hta/rank_non_gpu/rank_non_gpu.json.gz",
    "hta/rank_unavailable/rank_not_found.json.gz",
    "hta/trace_compare/base/base.json.gz",
    "hta/trace_compare/test/test.json.gz",
    "hta/trace_diff/control/control.json.gz",
    "hta/trace_diff/test/test.json.gz",
    "hta/triton_example/triton_example.json.gz",
    "hta/with_gpu_user_annotation/step_based_trace_2543932.json.gz",
    "kineto/after_fix_trace.json",
    "kineto/before_fix_trace.json",
    "kineto/gpu_metrics_input.json",
    "kineto/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz",
    "kineto/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz",
    "param/linear_kineto.json.gz",
    "param/resnet_kineto.json.gz",
    "tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/inference/sglang_decode/capture_traces/bs_32_rank0.json.gz",
    "tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
    "tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz",
    (
        "tracelens/inference/vllm_decode_full/capture_traces/"
        "graph_capture_rank_0.1773709742341309550.pt.trace.json.gz"
    ),
    "tracelens/inference/vllm_decode_full/graph_execution.json.gz",
    "tracelens/mi210/gpu_only_trace/gpu_only_trace.json.gz",
    "tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "tracelens/mi300/resnet_act_checkpoint.json.gz",
    "tracelens/perf_model/normalization/normalization_layer_test.json.gz",
    "tracelens/torch_compile_triton/trace.json.gz",
    "vllm_tracemap/1_h100_1000isl_10osl_32con.pt.trace.json.gz",
)
OTHER_FORMATS = (
    "tracelens/rocprof/908_results.json.gz",
    "xplane/trace_json/GPU-multi-worker_192.0.2.1_6003.trace.json.gz",
    "xplane/trace_json/tpu_inference_2.v1.trace.json.gz",
)
"""JSON with times in it, but not from Kineto: read by other readers."""

# What the reference cannot know, as ours minus the reference's, by file. DeepSeek: the rule has no
# `dpsk::ep`, and 124.310 ms is the compute that runs beside or without it. TRACEMAP: the rule takes one
# fused pointwise kernel for communication because its name lists the ops that were fused.
DIFFERENCES: dict[str, dict[str, int]] = {
    DEEPSEEK: {
        "comm_union_ns": 113_440_000,
        "exposed_comm_ns": 4_186_000,
        "compute_union_ns": 124_310_000 - 128_500_000,
    },
    TRACEMAP: {
        "comm_union_ns": -21_503,
        "exposed_comm_ns": -21_503,
        "compute_union_ns": 21_503,
    },
}


@pytest.fixture(scope="session")
def reference(traces: Path) -> Mapping[str, Any]:
    """The independent calculator's numbers by file."""
    return json.loads((traces / "reference_numbers.json").read_text())


def test_no_kineto_file_of_the_reference_is_left_out(reference: Mapping[str, Any]) -> None:
    with_devices = {
        name
        for name, numbers in reference.items()
        if "devices" in numbers and not name.endswith(".sqlite")
    }
    assert with_devices == {*FILES, *OTHER_FORMATS}


def assert_equal_to_reference(
    name: str, found: Explained, numbers: Mapping[str, Any], differences: Mapping[str, int]
) -> None:
    """Each number of each device, all at once so that a failure shows the whole picture."""
    wrong = {}
    for index, device in numbers["devices"].items():
        ours = found.devices[int(index)]
        for key, expected in device.items():
            if key == "idle_pct":
                assert round(100 * ours["idle_ns"] / ours["span_ns"], 4) == expected
            elif key == "max_gap_ns" and device["zero_dur"]:
                # There a gap ends at work without length; ours are the holes of the union.
                assert ours[key] >= expected
            elif ours[key] - expected != differences.get(key, 0):
                wrong[f"device {index} {key}"] = (ours[key], expected)
    assert not wrong, f"{name}: ours, reference: {wrong}"
    if "rank" in numbers:
        rank, world_size = (
            None if part == "None" else int(part) for part in numbers["rank"].split("/")
        )
        sources: Any = found.report.facts["sources"]
        for source in sources:
            assert source["rank"] == rank
            assert world_size is None or source["world_size"] == world_size


def assert_sums_close(name: str, found: Explained) -> None:
    """Every funnel closes, idle causes sum to idle, groups to the time without compute."""
    for report in (found.whole, found.report):
        total = () if report.funnel is None else (report.funnel,)
        for funnel in (*total, *report.device_funnels, *report.step_funnels):
            assert funnel.residuals() == {}, f"{name}: {funnel.title}"
        absent: Any = report.facts["compute_absent"]
        assert (absent is None) == (report.funnel is None)
        if absent is None:
            continue
        devices: Any = report.facts["devices"]
        without_compute = sum(
            device["window"]["span_ns"]
            - device["window"]["compute_ns"]
            - device["window"]["memset_ns"]
            for device in devices
        )
        assert absent["total_ns"] == sum(absent["groups_ns"].values()) == without_compute
        idle = sum(device["window"]["span_ns"] - device["window"]["busy_ns"] for device in devices)
        assert sum(absent["idle_ns"].values()) == idle
        for name_of_part in ("exposed_communication_ns", "exposed_memcpy_ns"):
            expected = sum(device["window"][name_of_part] for device in devices)
            assert sum(absent[name_of_part].values()) == expected


@pytest.mark.parametrize("name", FILES, ids=lambda name: name[-60:])
def test_whole_file_numbers_equal_the_reference(
    name: str, traces: Path, reference: Mapping[str, Any]
) -> None:
    found, numbers = explained(traces, name), reference[name]
    assert found.num_events == numbers["events"]
    assert found.num_replays == numbers["graph_launch_calls"]
    # MTIA work has a category that the reference does not count as device work.
    expected_devices = {9} if name == MTIA else {int(index) for index in numbers["devices"]}
    assert set(found.devices) == expected_devices
    assert_equal_to_reference(name, found, numbers, DIFFERENCES.get(name, {}))
    assert_sums_close(name, found)


def test_the_kernel_that_only_mentions_all_reduce_is_the_whole_difference(traces: Path) -> None:
    found = explained(traces, TRACEMAP)
    fused = "triton_poi_fused_add_all_reduce_bitwise_and_bitwise_or_embedding_ge_lt_masked_fill_mul_sub_0"
    assert found.renamed == {fused: 21_503}


def test_dlrm_ranks_equal_the_reference(dlrm: Sequence[Path], reference: Mapping[str, Any]) -> None:
    members = reference[DLRM]["members"]
    assert sorted(path.name for path in dlrm) == sorted(members)
    for path in dlrm:
        numbers = members[path.name]
        found = explained(path.parent, path.name)
        assert found.num_events == numbers["events"]
        assert set(found.devices) == {int(index) for index in numbers["devices"]}
        assert_equal_to_reference(path.name, found, numbers, {})
        assert_sums_close(path.name, found)
