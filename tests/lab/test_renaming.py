"""A diagnosis comes from what happened, not from names: everything renameable is renamed, nothing may change."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tokenpath.api.explain import explain
from tokenpath.api.lab import write_scenario
from tokenpath.export import json as report_json
from tokenpath.lab.draw import Spec

Json = dict[str, Any]

PID, STREAM, ID, ADDRESS = 51_000, 40, 7_000_000, 1 << 30
TIME_US = 86_400_000_000
KERNELS = (
    (r"^triton_(\w+)_(\d+)$", r"triton_\g<1>_9\2"),
    (r"_segment_k_off_kernel__5x_cublas", "_segment_k_off_kernel__5y_cublas"),
    (r"tilesize(\d+)x(\d+)x64_", r"tilesize\1x\2x128_"),
    (r"vectorized_elementwise_kernel<4, ", "vectorized_elementwise_kernel<8, "),
    (r"_Sum_bf16_", "_Sum_f16_"),
    (r"4096ul", "8192ul"),
    (r"reshape_and_cache_flash_kernel", "reshape_and_cache_kernel"),
    (r"indexSelectLargeIndex", "indexSelectSmallIndex"),
)
"""Other names of the same families."""


def _kernel(name: str) -> str:
    for pattern, other in KERNELS:
        name = re.sub(pattern, other, name)
    return name


def _frame(name: str) -> str:
    """Another file and another function; the collector's own frame is the diagnosis and stays."""
    found = re.fullmatch(r"(.+)\.py\((\d+)\): (\w+)", name)
    if found is None:
        return name
    path = "/".join(f"x{len(part)}" for part in found[1].split("/"))
    return f"{path}.py({int(found[2]) + 3}): y_{sum(map(ord, found[3]))}"


def _args(args: Json) -> Json:
    shifts = {
        "correlation": ID,
        "External id": ID,
        "wait_on_cuda_event_record_corr_id": ID,
        "Python id": ID,
        "Python parent id": ID,
        "stream": STREAM,
        "wait_on_stream": STREAM,
        "Addr": ADDRESS,
    }
    changed = dict(args)
    for key, shift in shifts.items():
        if isinstance(args.get(key), int):
            changed[key] = args[key] + shift
    if "Process Group Name" in args:
        changed["Process Group Name"] = "17"
        changed["Process Group Description"] = "tp:0"
    return changed


def _event(event: Json) -> Json:
    changed = dict(event, args=_args(event.get("args", {})))
    if isinstance(event["pid"], int):
        on_device = event["pid"] < 1000
        changed["pid"] = event["pid"] + (0 if on_device else PID)
        if isinstance(event["tid"], int) and event["tid"]:
            changed["tid"] = event["tid"] + (STREAM if on_device else PID)
    if "ts" in event:
        changed["ts"] = round(event["ts"] - TIME_US, 3)
    if event.get("cat") == "ac2g":
        changed["id"] = event["id"] + ID
    if event.get("cat") == "kernel":
        changed["name"] = _kernel(event["name"])
    if event.get("cat") == "python_function":
        changed["name"] = _frame(event["name"])
    if event["name"] in ("process_name", "thread_name"):
        on_device = isinstance(event["pid"], int) and event["pid"] < 1000
        name = (
            f"stream {changed['tid']} " if on_device and changed["tid"] else f"w {changed['tid']}"
        )
        changed["args"] = {"name": name}
    return changed


def _trace(document: Json) -> Json:
    changed = dict(document, trace_id="0" * 32, traceName="/data/a.json")
    groups = document["distributedInfo"]["pg_config"]
    changed["distributedInfo"] = document["distributedInfo"] | {
        "pg_config": [group | {"pg_name": "17", "pg_desc": "tp:0"} for group in groups]
    }
    changed["baseTimeNanoseconds"] = document["baseTimeNanoseconds"] - 1_000_000_000
    changed["traceEvents"] = [_event(event) for event in document["traceEvents"]]
    return changed


def _renamed_device(seen: Path, to: Path) -> None:
    to.mkdir()
    for path in sorted(seen.iterdir()):
        document = json.loads(gzip.decompress(path.read_bytes()))
        rank = document["distributedInfo"]["rank"]
        other = to / f"w{9 - rank}-{chr(113 - rank)}.pt.trace.json.gz"
        other.write_bytes(gzip.compress(json.dumps(_trace(document)).encode(), 1))


def _renamed_serving(seen: Path, to: Path) -> None:
    """Run, requests, model and hosts: the same words wherever they stand, file names included."""
    to.mkdir()
    runs = json.loads((seen / "runs.json").read_text("utf-8"))["runs"]
    scraped = (seen / "query_range.json").read_text("utf-8")
    model = re.findall(r'"model_name": ?"([^"]+)"', scraped)[0]
    words = {model: "acme/tower-70b-chat"}
    for index, host in enumerate(sorted(set(re.findall(r'"instance": ?"([^"]+)"', scraped)))):
        words[host] = f"10.0.0.{9 + index}:9100"
    for index, run in enumerate(runs):
        words[run["run"]] = f"night{index}"
        words[re.sub(r"\d+$", "", run["run"]) + "-"] = "q-"

    def renamed(text: str) -> str:
        for old, new in words.items():
            text = text.replace(old, new)
        return text

    for path in sorted(seen.iterdir()):
        is_packed = path.suffix == ".gz"
        data = gzip.decompress(path.read_bytes()) if is_packed else path.read_bytes()
        changed = renamed(data.decode()).encode()
        (to / renamed(path.name)).write_bytes(gzip.compress(changed, 1) if is_packed else changed)


def _diagnosis(folder: Path) -> list[tuple[str, float]]:
    """Costs as the reader sees them: codes in order, each with its share."""
    report = json.loads(report_json.render(explain([folder]).report))
    return [
        (finding["code"], finding["share"] or 0.0)
        for finding in report["findings"]
        if finding["kind"] == "cost"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "rename"),
    [
        (Spec(3, "device", ("host-gc",), (3,), False), _renamed_device),
        (Spec(11, "serving", ("host-step-overhead",), (3,), False), _renamed_serving),
    ],
    ids=["device", "serving"],
)
def test_the_diagnosis_does_not_read_names(
    spec: Spec, rename: Callable[[Path, Path], None], tmp_path: Path
) -> None:
    truth = write_scenario(spec, tmp_path / "seen", tmp_path / "truth")
    seen, other = tmp_path / "seen" / truth.id, tmp_path / "other"
    rename(seen, other)
    before, after = _diagnosis(seen), _diagnosis(other)
    assert before
    assert [code for code, _ in after] == [code for code, _ in before]
    assert [share for _, share in after] == pytest.approx(
        [share for _, share in before], rel=0.01, abs=1e-4
    )
