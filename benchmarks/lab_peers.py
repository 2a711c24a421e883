"""The lab's device scenarios read by peers, each scored within its own vocabulary (docs/lab-peers.md).

    python benchmarks/lab_peers.py make --to seen/ --truth truth/
    PEER/bin/python benchmarks/lab_peers.py hta --to seen/ --out hta.jsonl        in an environment of its own
    python benchmarks/lab_peers.py tokenpath --to seen/ --truth truth/ --out tokenpath.jsonl
    python benchmarks/lab_peers.py page --truth truth/ --ours tokenpath.jsonl --hta hta.jsonl --page docs/lab-peers.md

Every step resumes. `hta` needs HolisticTraceAnalysis 0.5.0 and nothing of this package.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- scores -->\n", "<!-- end of scores -->\n"
COUNTED_SHARE = 0.02
"""Smaller losses are not scored, smaller statements are not read: the lab's own bar (lab/judge.py)."""
NUM_HEALTHY, HEALTHY_SEED, FAULT_SEED, SEEDS_A_KIND, LEVEL = 10, 7000, 9000, 3, 3

HOST = [
    "host-eager",
    "host-gc",
    "host-gil",
    "host-slow-scheduler",
    "host-sync",
    "host-sampling",
    "host-pageable-copy",
    "host-allocator",
    "host-recompile",
    "host-data-loader",
    "host-oversubscribed",
    "memory-growth",
    "bench-warm-up",
    "bench-no-load",
]
HTA_NAMES: Mapping[str, Sequence[str]] = {
    "host_wait": HOST,
    "kernel_wait": ["kernel-unfused", "hw-other-process", "host-eager"],
    "short_kernels": ["host-eager", "kernel-unfused"],
    "exposed_communication": ["comm-slow-link", "comm-small-messages", "comm-not-overlapped"],
    "straggler": ["comm-straggler", "comm-slow-device", "comm-imbalance"],
    "memory_kernels": ["hw-slow-pcie", "host-pageable-copy", "host-sampling"],
}
"""What HTA prints -> kinds of faults that a reader could name from it. Read generously: the cause itself is never
printed, only the class of lost time."""


# --- scenarios -------------------------------------------------------------------------------------------------


def make(to: Path, truth_to: Path) -> None:
    """Ten healthy scenarios and one of every kind of the device world, at a loss that counts where one is found."""
    from tokenpath.api.lab import write_scenario
    from tokenpath.lab.draw import Spec
    from tokenpath.lab.truth import load_fault_kinds

    for number in range(NUM_HEALTHY):
        write_scenario(Spec(HEALTHY_SEED + number, "device", (), (), False), to, truth_to)
    kinds = [kind for kind, entry in load_fault_kinds().items() if entry.world == "device"]
    for number, kind in enumerate(kinds):
        for attempt in range(SEEDS_A_KIND):
            seed = FAULT_SEED + 10 * number + attempt
            truth = write_scenario(Spec(seed, "device", (kind,), (LEVEL,), False), to, truth_to)
            if truth.faults and truth.faults[0].lost_ns >= COUNTED_SHARE * truth.wall_ns:
                break


def _resumed(
    out: Path, folders: Sequence[Path], score: Callable[[Path], Mapping[str, Any]]
) -> None:
    """One JSON line a scenario; those that the file holds are not done again."""
    lines = out.read_text("utf-8").splitlines() if out.exists() else []
    known = {json.loads(line)["id"] for line in lines}
    for folder in folders:
        if folder.name not in known:
            begin_s = time.perf_counter()
            row = {"id": folder.name, **score(folder), "s": time.perf_counter() - begin_s}
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


FOREIGN = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    TypeError,
    ValueError,
)
"""What a foreign tool raised, or may, on traces that it cannot read; it is reported."""

# --- peers -----------------------------------------------------------------------------------------------------


def hta(folder: Path) -> Mapping[str, Any]:
    """HTA's own figures as shares of the wall; a figure it does not give is absent, its reason is kept."""
    # With its default rounding to whole microseconds HTA stops on traces of device graphs (kernels then overlap).
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    tool = importlib.import_module("hta.trace_analysis")
    paths = sorted(folder.glob("rank*.json.gz"))
    if b"ProfilerStep" not in gzip.decompress(paths[0].read_bytes()):
        # Its straggler analysis needs these marks; for everything else two ranks tell what eight do.
        paths = paths[:2]
    files = {int(path.name[4:].split(".")[0]): str(path) for path in paths}
    try:
        analysis = tool.TraceAnalysis(trace_files=files, trace_dir=str(folder))
        temporal = analysis.get_temporal_breakdown(visualize=False)
    except FOREIGN as error:
        return {"says": {}, "errors": [repr(error)[:200]]}
    wall_us = float(temporal["kernel_time(us)"].mean())
    says: dict[str, float] = {}
    errors: list[str] = []

    def ask(part: Callable[[], None]) -> None:
        try:
            part()
        except FOREIGN as error:
            errors.append(f"{part.__name__}: {error!r}"[:200])

    def idle() -> None:
        rows = analysis.get_idle_time_breakdown(ranks=sorted(files), visualize=False)[0]
        for name in ("host_wait", "kernel_wait"):
            # The busiest stream is the one that idles least: others wait by design.
            whole = rows.groupby(["rank", "stream"])["idle_time"].sum()
            least = whole.groupby("rank").idxmin()
            chosen = rows[rows["idle_category"] == name].set_index(["rank", "stream"])["idle_time"]
            says[name] = float(chosen.reindex(least).fillna(0).mean()) / wall_us

    def overlap() -> None:
        share = analysis.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"].mean()
        kinds = analysis.get_gpu_kernel_breakdown(visualize=False)[0]
        sums = dict(zip(kinds["kernel_type"], kinds["sum"], strict=True))
        ranks = len(files)
        if share == share:
            alone_us = sums.get("COMMUNICATION", 0) * (1 - share / 100)
            says["exposed_communication"] = float(alone_us) / ranks / wall_us
        says["memory_kernels"] = float(sums.get("MEMORY", 0)) / ranks / wall_us

    def launches() -> None:
        stats = analysis.get_cuda_kernel_launch_stats(ranks=sorted(files), visualize=False)
        lost_us = 0.0
        for table in stats.values():
            short = table[table["gpu_duration"] < table["cpu_duration"]]
            lost_us += float((short["cpu_duration"] - short["gpu_duration"]).sum())
        says["short_kernels"] = lost_us / len(files) / wall_us

    def stragglers() -> None:
        found = analysis.get_potential_stragglers(num_candidates=1) if len(files) > 1 else []
        says["straggler_rank"] = int(found[0]) if len(found) else -1

    for part in (idle, overlap, launches, stragglers):
        ask(part)
    return {"says": says, "errors": errors}


def ours(folder: Path, truth_folder: Path) -> Mapping[str, Any]:
    """Tokenpath's codes in order, by the lab's own judge."""
    from tokenpath.api.explain import explain
    from tokenpath.export import json as report_json
    from tokenpath.lab.judge import claims_of, judge
    from tokenpath.lab.truth import load_fault_kinds, read_truth

    truth = read_truth(truth_folder / f"{folder.name}.json")
    claims = claims_of(json.loads(report_json.render(explain([folder]).report)))
    right = {code for fault in truth.faults for code in load_fault_kinds()[fault.kind].codes}
    verdict = judge(truth, claims)
    return {
        "first": verdict.top1,
        "at_all": any(claim.code in right for claim in claims),
        "false_alarm": verdict.false_alarm,
    }


def statements(row: Mapping[str, Any]) -> list[tuple[str, float]]:
    """HTA's statements above the bar, the largest first; a straggler has no size: it stands before the exposed
    communication that it would explain."""
    says = row["says"]
    sized = [(name, says[name]) for name in HTA_NAMES if says.get(name, 0.0) >= COUNTED_SHARE]
    sized.sort(key=lambda one: -one[1])
    if (
        says.get("straggler_rank", -1) >= 0
        and says.get("exposed_communication", 0) >= COUNTED_SHARE
    ):
        place = [name for name, _ in sized].index("exposed_communication")
        sized.insert(place, ("straggler", says["exposed_communication"]))
    return sized


def hta_verdict(row: Mapping[str, Any], kind: str, rank: str | None) -> tuple[bool, bool]:
    """(names it first, names it at all); a straggler must be the right rank."""
    right = []
    for name, _ in statements(row):
        is_right = kind in HTA_NAMES[name]
        if name == "straggler" and str(row["says"]["straggler_rank"]) != rank:
            is_right = False
        right.append(is_right)
    return bool(right) and right[0], any(right)


# --- page ------------------------------------------------------------------------------------------------------


def page(truth_folder: Path, ours_path: Path, hta_path: Path) -> Iterator[str]:
    """The generated part of docs/lab-peers.md."""
    mine, peer = (
        {row["id"]: row for row in map(json.loads, path.read_text("utf-8").splitlines())}
        for path in (ours_path, hta_path)
    )
    truths = [json.loads(path.read_text("utf-8")) for path in sorted(truth_folder.glob("*.json"))]
    truths = [truth for truth in truths if truth["id"] in mine and truth["id"] in peer]
    vocabulary = {kind for kinds in HTA_NAMES.values() for kind in kinds}
    rows, sums, foreign = [], [0] * 5, [0] * 3
    for truth in truths:
        fault = truth["faults"][0] if truth["faults"] else None
        if fault is None or fault["lost_ns"] < COUNTED_SHARE * truth["wall_ns"]:
            continue
        me, share = mine[truth["id"]], fault["lost_ns"] / truth["wall_ns"]
        said = ", ".join(
            f"{name} {100 * size:.0f} %" for name, size in statements(peer[truth["id"]])
        )
        if fault["kind"] in vocabulary:
            first, at_all = hta_verdict(
                peer[truth["id"]], fault["kind"], fault["place"].get("rank")
            )
            for place, value in enumerate((True, me["first"], me["at_all"], first, at_all)):
                sums[place] += bool(value)
            marks = [_mark(me["first"]), _mark(me["at_all"]), _mark(first), _mark(at_all)]
        else:
            for place, value in enumerate((True, me["first"], me["at_all"])):
                foreign[place] += bool(value)
            marks = [_mark(me["first"]), _mark(me["at_all"]), "no word", "no word"]
        rows.append([fault["kind"], f"{100 * share:.0f} %", *marks, said or "nothing above 2 %"])
    healthy = [truth["id"] for truth in truths if not truth["faults"]]
    loud = sum(bool(statements(peer[one])) for one in healthy)
    alarms = sum(bool(mine[one]["false_alarm"]) for one in healthy)
    failed = sum(not peer[truth["id"]]["says"] for truth in truths)
    yield f"{len(truths)} scenarios; HTA stopped with an error on {failed} of them."
    yield ""
    yield "| faults | scenarios | tokenpath first | tokenpath at all | HTA first | HTA at all |"
    yield "|---|---:|---:|---:|---:|---:|"
    yield "| that HTA has a word for | " + " | ".join(map(str, sums)) + " |"
    yield (
        "| that it has none for | "
        + " | ".join(map(str, foreign))
        + " | not counted | not counted |"
    )
    yield ""
    yield (
        f"Healthy: {len(healthy)} scenarios; tokenpath raises a cost above 2 % in {alarms}; HTA shows at least one "
        f"class of lost time above 2 % in {loud} (it gives shares and raises no alarm, so this is not scored)."
    )
    yield ""
    yield "| fault | lost | tokenpath first | at all | HTA first | at all | HTA's figures above 2 % of the wall |"
    yield "|---|---:|---|---|---|---|---|"
    yield from ("| " + " | ".join(row) + " |" for row in sorted(rows))


def _mark(value: object) -> str:
    return "yes" if value else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "hta", "tokenpath", "page"))
    for name in ("to", "truth", "out", "ours", "hta", "page"):
        parser.add_argument(f"--{name}", type=Path)
    parsed = parser.parse_args()
    if parsed.what == "make":
        make(parsed.to, parsed.truth)
    elif parsed.what == "page":
        text = parsed.page.read_text("utf-8")
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        lines = "".join(f"{line}\n" for line in page(parsed.truth, parsed.ours, parsed.hta))
        parsed.page.write_text(text[:begin] + lines + text[end:], "utf-8")
    else:
        score = hta if parsed.what == "hta" else lambda folder: ours(folder, parsed.truth)
        _resumed(
            parsed.out,
            sorted((path for path in parsed.to.iterdir() if path.is_dir()), reverse=True),
            score,
        )


if __name__ == "__main__":
    main()
