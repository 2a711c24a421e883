"""The recorder's step log: what the scheduler did, as docs/formats/vllm_steps.md has it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tokenpath.engine.scheduler import Kind
from tokenpath.lab.serving.observers import Names
from tokenpath.lab.serving.records import NEVER, Run, Step

_KINDS = {int(Kind.RUN): "run", int(Kind.NEW): "new", int(Kind.RESUMED): "resumed"}


def write_steps(run: Run, names: Names, folder: Path) -> None:
    """A log a replica, and the list of runs that places its clock."""
    plan = run.plan
    for index in range(plan.num_replicas):
        suffix = f"-dp{index}" if plan.num_replicas > 1 else ""
        path = folder / f"{names.run}{suffix}.steps.jsonl.gz"
        lines = [json.dumps(_config(run, names, index)), *_records(run, names, index)]
        path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode(), 1, mtime=0))
    listed = {"run": names.run, "t0_unix_ns": names.t0_unix_ns}
    (folder / "runs.json").write_text(json.dumps({"engine": "vllm", "runs": [listed]}), "utf-8")


def _config(run: Run, names: Names, index: int) -> dict[str, object]:
    engine, plan = run.plan.engine, run.plan
    scheduler = "AsyncScheduler" if plan.is_async else "Scheduler"
    config: dict[str, object] = {
        "ev": "config", "vllm": engine.version,
        "scheduler": "BatchScheduler" if plan.is_static else scheduler,
        "max_num_batched_tokens": engine.max_num_batched_tokens, "max_num_seqs": engine.max_num_seqs,
        "policy": engine.policy, "async_scheduling": plan.is_async,
        "chunked_prefill": not plan.is_static, "long_prefill_token_threshold": 0,
        "max_model_len": engine.max_model_len, "block_size": engine.block_size,
        "num_blocks": engine.num_blocks, "prefix_caching": engine.enable_prefix_caching, "run": names.run,
    }  # fmt: skip
    if plan.num_replicas > 1:
        config |= {"data_parallel_size": plan.num_replicas, "data_parallel_rank": index}
    if plan.speculation is not None:
        config |= {"num_speculative_tokens": plan.speculation.num_drafts}
    return config


def _records(run: Run, names: Names, index: int) -> list[str]:
    """Added requests and steps in the order of their times."""
    timed: list[tuple[int, int, str]] = []
    for k in ((run.added_ns != NEVER) & (run.replica == index)).nonzero()[0].tolist():
        at_ns = int(run.added_ns[k])
        text = (
            f'{{"ev":"add","t_us":{at_ns // 1000},"req":"{names.request[k]}",'
            f'"prompt":{run.load.prompt[k]},"max_tokens":{run.load.output[k]}}}'
        )
        timed.append((at_ns, 0, text))
    usable = run.plan.engine.num_usable_blocks
    outputs = [0] * len(names.request)
    labels = [f'["{name}","' for name in names.request]
    prompt = run.load.prompt.tolist()
    for step in run.steps[index]:
        text = _step(run, step, labels, names, outputs, prompt, usable)
        timed.append((step.start_ns, 1, text))
    timed.sort(key=lambda item: item[:2])
    return [text for _, _, text in timed]


def _step(
    run: Run, step: Step, labels: list[str], names: Names, outputs: list[int], prompt: list[int], usable: int
) -> str:  # fmt: skip
    shares = []
    before = step.before
    if run.plan.is_static:
        # The log states what a request's own tokens are; the padding shows in what was computed.
        before = [prompt[k] + outputs[k] - 1 if outputs[k] else 0 for k in step.request]
    for k, kind, computed, tokens, emitted in zip(
        step.request, step.kind, before, step.tokens, step.emitted, strict=True
    ):
        outputs[k] += emitted
        shares.append(f'{labels[k]}{_KINDS[kind]}",{computed},{tokens},{emitted}]')
    marks = ""
    if step.preempted:
        marks += ',"preempted":' + json.dumps([names.request[k] for k in step.preempted])
    if step.finished:
        marks += ',"done":' + json.dumps({names.request[k]: "length" for k in step.finished})
    start = step.start_ns // 1000
    execute, output = step.execute_ns // 1000, step.output_ns // 1000
    usage = round((usable - step.num_free_blocks) / usable, 6)
    return (
        f'{{"ev":"step","step":{step.number},"t_us":{start},"sched_us":{step.scheduled_ns // 1000 - start},'
        f'"exec_t_us":{execute},"exec_us":{step.executed_ns // 1000 - execute},"out_t_us":{output},'
        f'"update_us":{step.updated_ns // 1000 - output},"tokens":{sum(step.tokens)},"reqs":[{",".join(shares)}]'
        f'{marks},"running":{step.num_running},"waiting":{step.num_waiting},'
        f'"free_blocks":{step.num_free_blocks},"kv_usage":{usage}}}'
    )
