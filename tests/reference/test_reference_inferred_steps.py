"""Real traces stripped of their annotations: the steps that structure shows are the annotated ones.

The rules were written with these traces in view: the share is what they reach on them, no more.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tokenpath.capture.capture import Capture
from tokenpath.ingest import read
from tokenpath.stitch import link
from tokenpath.stitch.inferred_steps import infer_steps
from tokenpath.stitch.steps import find_steps

SERVING = (
    "engine/vllm-cpu/profiler/o40_eager_24steps.pt.trace.json.gz",
    "engine/vllm-cpu/profiler/sprof_compiled_40steps_detailed.pt.trace.json.gz",
    "traces/tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz",
    "traces/tracelens/inference/sglang_prefilldecode/sglang_Qwen3-8B_prefilldecode.json.gz",
    "traces/tracelens/inference/vllm_decode_full/graph_execution.json.gz",
)
PROFILER_STEPS = (
    "traces/hta/df_index_resolver/df_index_resolver.json.gz",
    "traces/hta/negative_queue_length_values_check/rank0.json.gz",
    "traces/hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "traces/hta/trace_diff/control/control.json.gz",
    "traces/hta/trace_diff/test/test.json.gz",
    "traces/hta/mtia_trace_single_rank/mtia_rank_0.json.gz",
    "traces/tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "traces/tracelens/mi300/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz",
    "traces/tracelens/mi300/resnet_act_checkpoint.json.gz",
)
TAKEN_FOR_MORE = "traces/deepseek/train.json.gz"
"""One profiler step of four micro-batches: what repeats is a micro-batch, and nothing says otherwise."""


def matched(capture: Capture) -> tuple[int, int]:
    """(annotated steps that one inferred step is, annotated steps).

    The same: it holds at least 99 % of the outermost operators that began within the annotated one, and
    of its own at most 1 % began within others.
    """
    steps = find_steps(capture)
    found = infer_steps(capture, 0)
    begin, close = (np.array(steps[name].to_pylist()) for name in ("start_ns", "end_ns"))
    if found is None:
        return 0, len(begin)
    parent = capture.ids("op", "parent_op_id")
    start = np.sort(capture.int64("op", "start_ns")[parent < 0])
    annotated = np.searchsorted(begin, start, "right") - 1
    annotated = np.where(
        (annotated >= 0) & (start < close[np.maximum(annotated, 0)]), annotated, -1
    )
    inferred = np.searchsorted(found.start, start, "right") - 1
    good = 0
    for number in range(len(begin)):
        mine = annotated == number
        values, counts = np.unique(inferred[mine], return_counts=True)
        most = values[np.argmax(counts)]
        strange = ((inferred == most) & (annotated >= 0) & ~mine).sum()
        good += counts.max() >= 0.99 * mine.sum() and strange <= 0.01 * (inferred == most).sum()
    return int(good), len(begin)


@pytest.mark.parametrize("name", [*SERVING, *PROFILER_STEPS])
def test_steps_of_a_trace(reference_data: Path, name: str) -> None:
    good, num_steps = matched(link(read([reference_data / name])))
    assert good == num_steps


def test_micro_batches_are_taken_for_steps(reference_data: Path) -> None:
    found = infer_steps(link(read([reference_data / TAKEN_FOR_MORE])), 0)
    assert found is not None
    assert len(found.start) == 4


def test_a_bare_trace_is_joined_to_the_scheduler(reference_data: Path) -> None:
    """No annotation at all: steps by structure, then by time to the log; the same links as by number."""
    engine = reference_data / "engine" / "vllm-cpu"
    capture = read(
        [
            engine / "load" / "o40.steps.jsonl.gz",
            engine / "profiler" / "o40_eager_24steps.pt.trace.json.gz",
        ]
    )
    table = capture["range"]
    kept = [not name.startswith(("vllm.step", "execute_")) for name in table["name"].to_pylist()]
    bare = link(capture.replace({"range": table.filter(kept)}))
    links = [
        [
            row["scheduler_step_id"]
            for row in linked["step"].to_pylist()
            if row["observer"] == "profiler"
        ]
        for linked in (link(capture), bare)
    ]
    assert len(links[0]) == 24
    assert links[0] == links[1]
