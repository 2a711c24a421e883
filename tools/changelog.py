"""Check the news fragments, or move them into CHANGELOG.md with ``--release VERSION``."""

from __future__ import annotations

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("added", "changed", "fixed", "removed")
MARK = "<!-- releases -->\n"
SENTENCE_CHARACTERS_MAX = 300


def find_faults(news: Path) -> list[str]:
    """What is wrong with each fragment: its name or its one sentence."""
    faults = []
    for path in sorted(news.iterdir()):
        if path.name == "README.md":
            continue
        text = path.read_text(encoding="utf-8").strip()
        if not re.fullmatch(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md", path.name):
            faults.append(f"{path.name}: the name is <short-name>.<{'|'.join(KINDS)}>.md")
        if "\n\n" in text or not text.endswith(".") or len(text) > SENTENCE_CHARACTERS_MAX:
            faults.append(
                f"{path.name}: one sentence, at most {SENTENCE_CHARACTERS_MAX} characters"
            )
    return faults


def gather(news: Path, version: str, day: datetime.date) -> str:
    """The section of one release; kinds in their order, fragments by name."""
    parts = [f"## {version} ({day.isoformat()})\n"]
    for kind in KINDS:
        lines = [
            "- " + " ".join(path.read_text(encoding="utf-8").split())
            for path in sorted(news.glob(f"*.{kind}.md"))
        ]
        if lines:
            parts.append(f"### {kind.capitalize()}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def release(root: Path, version: str, day: datetime.date) -> None:
    """Put the section below the mark of CHANGELOG.md and remove its fragments."""
    changelog = root / "CHANGELOG.md"
    before, mark, after = changelog.read_text(encoding="utf-8").partition(MARK)
    if not mark:
        raise SystemExit(f"error: CHANGELOG.md has lost its line {MARK!r}")
    section = gather(root / "news", version, day)
    changelog.write_text(f"{before}{mark}\n{section}{after}", encoding="utf-8")
    for kind in KINDS:
        for path in (root / "news").glob(f"*.{kind}.md"):
            path.unlink()


def main(arguments: list[str] | None = None) -> int:
    """1 when a fragment is malformed, 0 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", metavar="VERSION")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    faults = find_faults(options.root / "news")
    print(*faults, sep="\n", end="\n" if faults else "")
    if not faults and options.release:
        release(options.root, options.release, datetime.datetime.now(datetime.UTC).date())
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
