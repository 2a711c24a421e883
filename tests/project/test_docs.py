"""What the documentation says to type exists, and no tracked file speaks of the place it was made in."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.md")),
]
# Put together here so that this file does not contain what it forbids.
FORBIDDEN = [
    "/" + "work/",
    "/" + "root/",
    "/tmp/" + "brief",
    "pypi" + ".org",
    "python" + "hosted.org",
    "registry.npm" + "js",
    "deb.debian" + ".org",
]


def code_lines(page: str) -> list[str]:
    """Lines of fenced blocks, indented blocks and inline code of a Markdown page."""
    fenced = re.findall(r"^```[^\n]*\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    lines += re.findall(r"^(?: {4}|\t)(.+)$", rest, flags=re.MULTILINE)
    return [line.strip() for line in [*lines, *re.findall(r"`([^`\n]+)`", rest)]]


def documented_commands() -> dict[str, set[str]]:
    """Each documented verb with the options that some page gives it."""
    commands: dict[str, set[str]] = defaultdict(set)
    for page in PAGES:
        for line in code_lines(page.read_text(encoding="utf-8")):
            match = re.match(r"(?:\$ |\w+=\S+ )*tokenpath ([a-z][a-z-]*)(?=\s|$)(.*)", line)
            if match:
                arguments = re.split(r"\s#|[|;]", match[2])[0]
                commands[match[1]] |= set(re.findall(r"(?<=\s)--[a-z][a-z-]*", arguments))
    return commands


def help_of(verb: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tokenpath", verb, "--help"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_documentation_shows_the_main_command() -> None:
    assert "explain" in documented_commands()


@pytest.mark.parametrize("verb", sorted(documented_commands()))
def test_a_documented_command_and_its_options_exist(verb: str) -> None:
    done = help_of(verb)
    assert done.returncode == 0, f"`tokenpath {verb}` is documented but not there: {done.stderr}"
    known = set(re.findall(r"--[a-z][a-z-]*", done.stdout))
    assert documented_commands()[verb] <= known


def test_a_command_that_is_not_there_is_told_apart() -> None:
    assert help_of("no-such-verb").returncode == 2


@pytest.mark.parametrize(
    "page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix().replace("/", ":")
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = re.sub(
        r"^```.*?^```|`[^`\n]*`",
        "",
        page.read_text(encoding="utf-8"),
        flags=re.MULTILINE | re.DOTALL,
    )
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{target} in {page.name}"


@pytest.mark.parametrize("target", ["demo", "test", "lint", "fuzz", "bench", "docs"])
def test_a_make_target_exists_and_its_program_too(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for program in re.findall(r"bin/python (\S+\.py)", done.stdout):
        assert (ROOT / program).is_file()


def test_documented_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, flags=re.MULTILINE))
    for page in PAGES:
        for line in code_lines(page.read_text(encoding="utf-8")):
            match = re.match(r"(?:\$ )?make ([a-z]+)\b", line)
            assert not match or match[1] in targets, f"make {match[1]} in {page.name}"


def test_tracked_files_name_no_workplace_and_no_package_host() -> None:
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout: nothing says which files are tracked")
    listing = ["git", "-c", "safe.directory=*", "ls-files", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    faults = []
    for name in filter(None, names):
        path = ROOT / name.decode("utf-8")
        if path.is_file():
            content = path.read_bytes()
            faults += [f"{path.relative_to(ROOT)}: {w}" for w in FORBIDDEN if w.encode() in content]
    assert not faults
