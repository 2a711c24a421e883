"""Metrics: the text formats, query answers, and each semantic trap as a note."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compare import reasons, rows
from tokenpath.capture.capture import Capture
from tokenpath.capture.validate import validate
from tokenpath.core.errors import TokenpathError
from tokenpath.explain import pages
from tokenpath.ingest import read
from tokenpath.ingest.losses import Losses
from tokenpath.ingest.metrics import exposition
from tokenpath.ingest.metrics.samples import NO_TIME


def read_text(folder: Path, *texts: str) -> Capture:
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.prom")
        paths[-1].write_text(text, encoding="utf-8")
    capture = read(paths)
    validate(capture)
    return capture


def gauge(name: str, value: object = 1, **labels: str) -> str:
    inner = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"# TYPE {name} gauge\n{name}{{{inner}}} {value}\n"


def counter(name: str, value: object = 1) -> str:
    return f"# TYPE {name}_total counter\n{name}_total {value}\n"


def histogram(name: str, *counts: tuple[str, int]) -> str:
    lines = [f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in counts]
    return "\n".join([f"# TYPE {name} histogram", *lines, f"{name}_count {counts[-1][1]}\n"])


def notes(capture: Capture) -> dict[str, str]:
    return dict(rows(capture, "source_note", "code", "sentence"))


def one(capture: Capture, *columns: str) -> Any:
    (row,) = rows(capture, "counter_sample", *columns)
    return row


TRAPS = {
    "ttft-includes-queue": histogram("vllm:time_to_first_token_seconds", ("0.1", 1), ("+Inf", 1)),
    "prefill-is-wall-time": histogram("vllm:request_prefill_time_seconds", ("1", 1), ("+Inf", 1)),
    "ratio-named-percent": gauge("vllm:kv_cache_usage_perc", 0.5),
    "histogram-named-total": histogram("vllm:iteration_tokens_total", ("8", 1), ("+Inf", 1)),
    "histogram-resolution": histogram(
        "vllm:request_queue_time_seconds", ("0.3", 9), ("0.5", 10), ("+Inf", 10)
    ),
    "per-rank-series": gauge("sglang:num_running_reqs", 3, tp_rank="0")
    + gauge("sglang:num_running_reqs", 3, tp_rank="1"),
    "mixed-units": gauge("sglang:fwd_occupancy", 50),
    "cache-config-missing": gauge("sglang:page_size", 64),
    "kv-available-differs": gauge("sglang:kv_available_tokens", 64),
    "gpu-util-is-residency": gauge("DCGM_FI_DEV_GPU_UTIL", 100),
    "estimated-work": counter("sglang:estimated_flops_per_gpu", 5),
    "estimated-not-measured": counter("vllm:estimated_flops_per_gpu", 0),
    "lifetime-average": gauge("llamacpp:n_busy_slots_per_decode", 2.5),
    "predicted-hit-rate": histogram("dynamo_component_router_kv_hit_rate", ("1", 1), ("+Inf", 1)),
    "renamed-metric": gauge("vllm:gpu_cache_usage_perc", 0.5),
    "no-sample-time": gauge("vllm:num_requests_running", 1),
}


@pytest.mark.parametrize("code", TRAPS)
def test_a_trap_is_a_note_with_a_page(code: str, tmp_path: Path) -> None:
    found = notes(read_text(tmp_path, TRAPS[code]))
    assert code in found
    assert found[code].endswith(".")
    assert "[masked]" not in found[code]
    assert pages.about(code).startswith(f"# {code}\n")


@pytest.mark.parametrize("code", [code for code in TRAPS if code != "no-sample-time"])
def test_no_note_without_its_trap(code: str, tmp_path: Path) -> None:
    assert code not in notes(read_text(tmp_path, gauge("vllm:num_requests_running", 1)))


def test_a_ratio_named_per_cent_stays_a_ratio(tmp_path: Path) -> None:
    capture = read_text(tmp_path, gauge("vllm:kv_cache_usage_perc", 0.5))
    assert one(capture, "name", "value", "unit") == ("kv.usage", 0.5, "ratio")


def test_an_occupancy_in_per_cent_becomes_a_ratio(tmp_path: Path) -> None:
    capture = read_text(tmp_path, gauge("sglang:fwd_occupancy", 50))
    assert one(capture, "name", "value", "unit") == ("gpu.forward_busy", 0.5, "ratio")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DCGM_FI_DEV_FB_USED", 2, (2 * 2**20, "byte")),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1500, (1.5, "J")),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 25, (0.25, "ratio")),
        ("DCGM_FI_PROF_DRAM_ACTIVE", 0.25, (0.25, "ratio")),
        ("DCGM_FI_DEV_SM_CLOCK", 1980, (1.98e9, "Hz")),
        ("DCGM_FI_DEV_POWER_USAGE", 700, (700, "W")),
    ],
)
def test_units_of_dcgm(tmp_path: Path, name: str, value: float, expected: Any) -> None:
    assert one(read_text(tmp_path, gauge(name, value)), "value", "unit") == expected


def test_bounds_of_buckets_are_scaled_and_counts_are_not(tmp_path: Path) -> None:
    text = histogram("sglang:kv_transfer_latency_ms", ("25", 3), ("+Inf", 4))
    text += "sglang:kv_transfer_latency_ms_sum 80\n"
    found = rows(read_text(tmp_path, text), "counter_sample", "kind", "labels", "value", "unit")
    assert found == [
        ("bucket", '{"le":"0.025"}', 3.0, "1"),
        ("bucket", '{"le":"+Inf"}', 4.0, "1"),
        ("count", None, 4.0, "1"),
        ("sum", None, 0.08, "s"),
    ]


def test_an_estimate_that_never_counted_is_null(tmp_path: Path) -> None:
    zero = counter("vllm:estimated_flops_per_gpu", 0)
    assert one(read_text(tmp_path, zero), "value") is None
    capture = read_text(tmp_path, zero, counter("vllm:estimated_flops_per_gpu", 7))
    assert rows(capture, "counter_sample", "value") == [0.0, 7.0]


def test_the_note_names_the_width_of_the_bucket(tmp_path: Path) -> None:
    sentence = notes(read_text(tmp_path, TRAPS["histogram-resolution"]))["histogram-resolution"]
    assert "vllm:request_queue_time_seconds (0 to 0.3 s)" in sentence


def test_a_median_in_a_later_bucket_needs_no_note(tmp_path: Path) -> None:
    text = histogram("vllm:request_queue_time_seconds", ("0.3", 1), ("0.5", 10), ("+Inf", 10))
    assert "histogram-resolution" not in notes(read_text(tmp_path, text))


def test_data_parallel_ranks_may_be_added(tmp_path: Path) -> None:
    text = "".join(gauge("sglang:num_running_reqs", 3, dp_rank=rank) for rank in "01")
    assert "per-rank-series" not in notes(read_text(tmp_path, text))


def test_renamed_metrics_come_under_the_name_of_their_successor(tmp_path: Path) -> None:
    capture = read_text(tmp_path, gauge("vllm:gpu_cache_usage_perc", 0.5))
    assert one(capture, "name") == "kv.usage"
    assert "now kv_cache_usage_perc" in notes(capture)["renamed-metric"]
    gone = read_text(tmp_path, gauge("llamacpp:kv_cache_usage_ratio", 0.5))
    assert "gone" in notes(gone)["renamed-metric"]


def test_the_side_car_and_ray_forms(tmp_path: Path) -> None:
    text = gauge("vllm_num_requests_running", 1) + gauge("ray_vllm_num_requests_waiting", 2)
    found = rows(read_text(tmp_path, text), "counter_sample", "name", "source_name")
    assert found == [
        ("requests.running", "vllm_num_requests_running"),
        ("requests.waiting", "ray_vllm_num_requests_waiting"),
    ]


def test_one_family_split_by_its_labels(tmp_path: Path) -> None:
    text = "".join(
        gauge("nv_trt_llm_request_metrics", n, request_type=kind)
        for n, kind in enumerate(("waiting", "scheduled", "novel"))
    )
    found = rows(read_text(tmp_path, text), "counter_sample", "name", "value")
    assert found == [
        ("requests.waiting", 0.0),
        ("requests.running", 1.0),
        ("nv_trt_llm_request_metrics", 2.0),
    ]


def test_a_gauge_that_ends_in_count_is_no_histogram(tmp_path: Path) -> None:
    capture = read_text(tmp_path, gauge("nv_inference_pending_request_count", 4))
    assert one(capture, "name", "kind") == ("requests.pending", "gauge")


def test_snapshots_are_put_in_order_by_their_counters(tmp_path: Path) -> None:
    """Sorted by name, `after` comes before `before`."""
    texts = [counter("vllm:prompt_tokens", value) for value in (30, 10, 20)]
    capture = read_text(tmp_path, *texts)
    assert rows(capture, "counter_sample", "value", "at_ns") == [(30.0, 2), (10.0, 0), (20.0, 1)]


def test_a_restarted_process_is_later(tmp_path: Path) -> None:
    starts = [gauge("process_start_time_seconds", value) for value in (2e9, 1e9)]
    texts = [starts[0] + counter("vllm:x", 1), starts[1] + counter("vllm:x", 99)]
    assert rows(read_text(tmp_path, *texts), "counter_sample", "at_ns") == [1, 1, 0, 0]


def test_settings_from_info_metrics(tmp_path: Path) -> None:
    capture = read_text(tmp_path, gauge("vllm:cache_config_info", 1, block_size="32"))
    assert rows(capture, "setting", "name", "value") == [
        ("vllm:cache_config_info.block_size", "32")
    ]
    assert one(capture, "kind") == "info"


def test_summaries_escapes_and_times(tmp_path: Path) -> None:
    text = (
        "# TYPE rpc summary\n"
        'rpc{quantile="0.9",path="a\\\\b\\"c\\nd,}"} 1e-3 1700000000123\n'
        "rpc_sum +Inf\n"
    )
    found = rows(read_text(tmp_path, text), "counter_sample", "kind", "labels", "value", "at_ns")
    labels = json.dumps({"path": 'a\\b"c\nd,}', "quantile": "0.9"}, separators=(",", ":"))
    time = 1_700_000_000_123_000_000
    assert found == [("quantile", labels, 0.001, time), ("sum", None, float("inf"), time)]


def test_names_in_quotes(tmp_path: Path) -> None:
    text = '# TYPE "my.metric" gauge\n{"my.metric",a="b"} 2\n'
    assert one(read_text(tmp_path, text), "name", "kind", "labels", "value") == (
        *("my.metric", "gauge", '{"a":"b"}', 2.0),
    )


def test_scalars_and_unnamed_series(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    data = {"resultType": "scalar", "result": [1.25, "7"]}
    path.write_text(json.dumps({"status": "success", "data": data}), encoding="utf-8")
    assert one(read([path]), "name", "value", "at_ns") == ("query_result", 7.0, 1_250_000_000)


def test_kinds_by_the_mapping_where_nothing_declares_them(tmp_path: Path) -> None:
    names = ["vllm:request_queue_time_seconds_sum", "vllm:prompt_tokens_total", "vllm:novel_sum"]
    result = [{"metric": {"__name__": name}, "value": [1, "2"]} for name in names]
    path = tmp_path / "a.json"
    data = {"resultType": "vector", "result": result}
    path.write_text(json.dumps({"status": "success", "data": data}), encoding="utf-8")
    assert rows(read([path]), "counter_sample", "name", "kind") == [
        ("latency.queue", "sum"),
        ("tokens.prompt", "counter"),
        ("vllm:novel_sum", None),
    ]


@pytest.mark.parametrize(
    "line", ["x", "x{", 'x{a="b} 1', "x 1_0", "x 0x10", "{} 1", "x{a=b} 1", "x one", '{a="b"} 1']
)
def test_bad_lines_are_counted(line: str) -> None:
    losses = Losses()
    samples = exposition.parse(f"good 1\n{line}\n", losses)
    assert samples.values == [1.0]
    assert [(loss.reason, loss.num_events, loss.offset) for loss in losses.rows()] == [
        ("damaged line", 1, 7)
    ]


@pytest.mark.parametrize("time", ["9e99", "-1", "99999999999999999999"])
def test_times_that_do_not_fit(time: str) -> None:
    losses = Losses()
    assert exposition.parse(f"x 1 {time}\n", losses).at_ns == [NO_TIME]
    assert [loss.reason for loss in losses.rows()] == ["damaged timestamp"]


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='abz_:{}",=\\ \n#0123.eE+-NnIif', max_size=60))
def test_any_text_is_read_or_counted(text: str) -> None:
    losses = Losses()
    samples = exposition.parse(text, losses)
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    dropped = sum(loss.num_events for loss in losses.rows() if loss.dropped)
    assert len(samples.values) + dropped == len(lines)


def test_hostile_lines_take_no_time(tmp_path: Path) -> None:
    text = "# TYPE x gauge\nx 1\nx{" + 'a="' * 200_000 + "\nx{" + "a" * 10**6 + "\n"
    text += "x " + "1" * 10**6 + "e\n" + "x{" + 'a="b",' * 200_000 + "} 1\n"
    assert reasons(read_text(tmp_path, text)) == {"damaged line": 4}


@pytest.mark.parametrize("depth", [100, 100_000])
def test_nested_answers_end_in_an_error(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"status":"success","data":{"resultType":"matrix","result":' + "[" * depth)
    with pytest.raises(TokenpathError, match="no sample"):
        read([path])
