"""News fragments are well formed and a release moves them, all of them, into the changelog."""

from __future__ import annotations

import datetime
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def changelog() -> ModuleType:
    spec = importlib.util.spec_from_file_location("changelog", ROOT / "tools" / "changelog.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_fragments_of_this_tree_are_well_formed(changelog: ModuleType) -> None:
    assert changelog.find_faults(ROOT / "news") == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zst.new.md", "Reads .zst.\n"),
        ("zst.md", "Reads .zst.\n"),
        ("zst.added.md", "Reads .zst\n"),
        ("zst.added.md", "Reads .zst.\n\nAnd more.\n"),
        ("zst.added.md", "Reads " + "x" * 300 + ".\n"),
    ],
)
def test_a_malformed_fragment_is_named(
    changelog: ModuleType, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / "news").mkdir()
    (tmp_path / "news" / name).write_text(text)
    assert changelog.main(["--root", str(tmp_path)]) == 1


def test_a_release_moves_the_fragments(changelog: ModuleType, tmp_path: Path) -> None:
    news = tmp_path / "news"
    news.mkdir()
    (news / "README.md").write_text("stays")
    (news / "b.added.md").write_text("Reads .zst\ntraces.\n")
    (news / "a.added.md").write_text("Reads .zip traces.\n")
    (news / "c.fixed.md").write_text("Closes the funnel.\n")
    head = "# Changelog\n\n<!-- releases -->\n"
    (tmp_path / "CHANGELOG.md").write_text(head + "\n## 0.1.0 (2020-01-01)\n")

    changelog.release(tmp_path, "0.2.0", datetime.date(2020, 2, 3))

    assert (tmp_path / "CHANGELOG.md").read_text() == head + (
        "\n## 0.2.0 (2020-02-03)\n"
        "\n### Added\n\n- Reads .zip traces.\n- Reads .zst traces.\n"
        "\n### Fixed\n\n- Closes the funnel.\n"
        "\n## 0.1.0 (2020-01-01)\n"
    )
    assert [path.name for path in news.iterdir()] == ["README.md"]
