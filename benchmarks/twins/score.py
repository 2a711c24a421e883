"""Diagnose recorded pairs: `python benchmarks/twins/score.py FOLDER`, a Markdown table of what is said of each."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

from tokenpath.api import explain
from tokenpath.core.finding import Finding, Kind

HERE = Path(__file__).resolve().parent


def costs_of(folder: Path, name: str, state: str) -> list[Finding]:
    """Cost findings of one side, in the report's order."""
    paths = sorted(folder.glob(f"{name}-{state}*.json.gz"))
    report = explain([*paths]).report
    return [finding for finding in report.findings if finding.kind is Kind.COST]


def said(finding: Finding | None) -> str:
    """A finding in a cell."""
    if finding is None:
        return "nothing"
    share = "" if finding.share is None else f" ({100 * finding.share:.1f} %)"
    return f"`{finding.code}`{share}"


def main() -> None:
    """Print the table."""
    folder = Path(sys.argv[1])
    twins = tomllib.loads((HERE / "twins.toml").read_text(encoding="utf-8"))
    walls = json.loads((folder / "walls.json").read_text(encoding="utf-8"))
    first = third = clean = 0
    print(
        "| pair | unprofiled, faulty over healthy | first in the faulty one | right | healthy: largest cost |"
    )
    print("| --- | --- | --- | --- | --- |")
    for name, twin in twins.items():
        faulty, healthy = costs_of(folder, name, "faulty"), costs_of(folder, name, "healthy")
        place = twin.get("place", {})
        right = [
            at
            for at, finding in enumerate(faulty)
            if finding.code in twin["codes"]
            and all(value in finding.place.get(key, "") for key, value in place.items())
        ]
        at = right[0] + 1 if right else None
        first, third = first + (at == 1), third + (at is not None and at <= 3)
        largest = max(healthy, key=lambda finding: finding.share or 0.0, default=None)
        clean += largest is None or (largest.share or 0.0) <= 0.02
        ratio = walls[name]["faulty"] / walls[name]["healthy"]
        verdict = "not found" if at is None else "first" if at == 1 else f"place {at}"
        cells = [f"{ratio:.2f}", said(faulty[0] if faulty else None), verdict, said(largest)]
        print(f"| {name}: {twin['title']} | {' | '.join(cells)} |")
    count = len(twins)
    print(f"\nRight cause first in {first} of {count} faulty ones, among the first three in {third}; no cost "
          f"above 2 % in {clean} of {count} healthy ones.")  # fmt: skip


if __name__ == "__main__":
    main()
