"""Lab: scenarios with known faults, and how well `explain` names them."""

from __future__ import annotations

import importlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenpath.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from tokenpath.lab.draw import Spec
    from tokenpath.lab.judge import Judgement
    from tokenpath.lab.truth import Truth, World

Progress = Callable[[int, int], None]
"""Called with how many are done, of how many."""


@dataclass(frozen=True)
class LabRequest:
    """Which scenarios."""

    num_scenarios: int
    """How many."""
    seed: int = 0
    """Seed of the board: the same seed draws the same scenarios."""
    kind: str | None = None
    """One kind of fault only; None lets all take turns."""
    worlds: Sequence[World] = ("device", "serving")
    """Worlds to draw from."""

    def specs(self) -> Iterator[tuple[int, Spec]]:
        """Places and what stands there."""
        from tokenpath.lab.draw import draw

        if self.num_scenarios <= 0:
            raise UsageError(
                f"{self.num_scenarios} scenarios", where="--scenarios", allowed="1 or more"
            )
        for place in range(self.num_scenarios):
            yield place, draw(self.seed, place, self.worlds, self.kind)


def generate_lab(
    request: LabRequest, to: Path, truth_to: Path, progress: Progress | None = None
) -> list[Truth]:
    """Write scenarios into folders of `to`, and what really happened into `truth_to`, apart.

    UsageError when one folder lies in the other: what is examined must not hold the answer.
    """
    inside, outside = to.resolve(), truth_to.resolve()
    if inside == outside or inside in outside.parents or outside in inside.parents:
        raise UsageError(
            "the truth must lie apart from the scenarios",
            where="--truth",
            allowed="a folder that is not in the other, nor around it",
        )
    truths = []
    for place, spec in request.specs():
        truths.append(write_scenario(spec, to, truth_to))
        if progress is not None:
            progress(place + 1, request.num_scenarios)
    return truths


def write_scenario(spec: Spec, to: Path, truth_to: Path) -> Truth:
    """Write one scenario; its truth comes back."""
    from tokenpath.lab.worlds import MODULES

    world = importlib.import_module(MODULES[spec.world])
    truth: Truth = world.write(world.make(spec), to, truth_to)
    return truth


def judge_scenario(folder: Path, truth: Truth) -> Judgement:
    """Explain what lies in a folder, as a user would, and hold it against the truth."""
    from tokenpath.api.explain import explain
    from tokenpath.export import json as report_json
    from tokenpath.lab.judge import claims_of, judge

    report = explain([folder]).report
    return judge(truth, claims_of(json.loads(report_json.render(report))))


def lab(
    request: LabRequest,
    *,
    jobs: int = 1,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> list[Judgement]:
    """Generate, explain and judge scenarios; each goes away when it has been judged.

    With `resume`, a JSON-lines file of raw scores: places that it holds are not computed again, and every new one
    is added as it comes. InputError when the file belongs to another board.
    """
    if jobs < 1:
        raise UsageError(f"{jobs} processes", where="--jobs", allowed="1 or more")
    if resume is not None and not resume.parent.is_dir():
        raise UsageError(
            f"{resume.parent} is no folder",
            where="--resume",
            allowed="a file in a folder that is there",
        )
    known = {} if resume is None else _read_scores(resume, request)
    todo = [(place, spec) for place, spec in request.specs() if place not in known]
    header = {"seed": request.seed, "kind": request.kind, "worlds": list(request.worlds)}
    commit = _commit()
    if resume is not None and resume.exists() and not resume.read_bytes().endswith(b"\n"):
        # A run that ended in mid-line must not spoil the next score too.
        with resume.open("a", encoding="utf-8") as file:
            file.write("\n")
    for place, judgement in _judged(todo, jobs):
        known[place] = judgement
        if resume is not None:
            line = {"board": header, "number": place, "commit": commit, **asdict(judgement)}
            with resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        if progress is not None:
            progress(len(known), request.num_scenarios)
    return [known[place] for place in sorted(known) if place < request.num_scenarios]


def score_folder(folder: Path, truth_folder: Path) -> list[Judgement]:
    """Judge scenarios that lie on disk, one a truth file."""
    from tokenpath.lab.truth import read_truth

    paths = sorted(truth_folder.glob("*.json"))
    if not paths:
        raise InputError("no truth file here", where=str(truth_folder), allowed="ID.json files")
    truths = [read_truth(path) for path in paths]
    for truth in truths:
        if not (folder / truth.id).is_dir():
            raise InputError(
                f"scenario {truth.id} is missing",
                where=str(folder),
                next_step="tokenpath lab generate --to ... --truth ...",
            )
    return [judge_scenario(folder / truth.id, truth) for truth in truths]


def judge_spec(spec: Spec) -> Judgement:
    """Generate a scenario in a temporary folder and judge it."""
    with tempfile.TemporaryDirectory(prefix="tokenpath-lab-") as scratch:
        to, truth_to = Path(scratch, "seen"), Path(scratch, "truth")
        truth = write_scenario(spec, to, truth_to)
        return judge_scenario(to / truth.id, truth)


def _judged(todo: Sequence[tuple[int, Spec]], jobs: int) -> Iterator[tuple[int, Judgement]]:
    if jobs <= 1:
        for place, spec in todo:
            yield place, judge_spec(spec)
        return
    # Spawned, not forked: Arrow and numba run threads of their own.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(judge_spec, spec): place for place, spec in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()


def _read_scores(path: Path, request: LabRequest) -> dict[int, Judgement]:
    from tokenpath.lab.judge import Judgement

    known: dict[int, Judgement] = {}
    if not path.exists():
        return known
    names = {field.name for field in fields(Judgement)}
    header = {"seed": request.seed, "kind": request.kind, "worlds": list(request.worlds)}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row: Mapping[str, Any] = json.loads(text)
            values = {name: row[name] for name in names}
            place, board = row["number"], row["board"]
        except (ValueError, KeyError, TypeError):
            # A line that was being written when the run ended: its scenario is computed again.
            continue
        if board != header:
            raise InputError(
                "these scores are of another board",
                where=f"{path}, line {number}",
                allowed=f"scores of {header}",
                next_step="name another file with --resume",
            )
        lists = ("kinds", "levels", "first_codes")
        known[place] = Judgement(**values | {name: tuple(values[name]) for name in lists})
    return known


def _commit() -> str | None:
    """The commit that scores belong to; None outside a checkout."""
    git = Path(__file__).resolve().parents[3] / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        name = head.removeprefix("ref: ")
        return (git / name).read_text(encoding="utf-8").strip() if name != head else head
    except OSError:
        return None
