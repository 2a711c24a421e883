from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import sample

from tokenpath.core.report import Note, Severity, Unit
from tokenpath.export import html, wording
from tokenpath.export.html_data import Limits, page_data

REPORTS = [sample.report, sample.empty_report, sample.unusable_report, sample.hostile_report]


class Elements(HTMLParser):
    """The elements of a page, and the text of its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data) -> None:
        if self.found and self.found[-1][0] in ("script", "style", "title", "pre") and data.strip():
            self.texts.append((self.found[-1][0], data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.mark.parametrize("report", REPORTS)
def test_names_add_no_element_and_no_address(report) -> None:
    elements = Elements(html.render(report()))
    assert [a.get("type") for a in elements.all("script")] == ["application/json", None]
    assert elements.all("img") == elements.all("link") == elements.all("iframe") == []
    for tag, attributes in elements.found:
        assert not {"src", "srcset", "onclick", "onerror", "style", "data"} & set(attributes), tag
        assert attributes.get("href", "#top").startswith("#")
    assert not re.search(
        r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", html.render(sample.report())
    )


@pytest.mark.parametrize("report", REPORTS)
def test_the_policy_admits_the_two_of_the_page_and_nothing_else(report) -> None:
    elements = Elements(html.render(report()))
    policy = elements.all("meta")[1]["content"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert "unsafe" not in policy
    style = next(text for tag, text in elements.texts if tag == "style")
    script = [text for tag, text in elements.texts if tag == "script"][-1]
    for directive, source in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert directives[directive] == f"'sha256-{digest}'"


def embedded(page: str) -> dict:
    data = next(text for tag, text in Elements(page).texts if tag == "script")
    return json.loads(data)


def test_the_data_is_the_report_worded_like_the_terminal() -> None:
    report = sample.report()
    data = embedded(html.render(report))
    assert data == json.loads(json.dumps(page_data(report, Limits())))
    assert data["answer"] == report.answer
    assert [f["gain"] for f in data["findings"]] == [wording.gain(f) for f in report.findings]
    assert [row["number"] for row in data["funnel"]["rows"]][:3] == ["261.90", "233.41", "96.02"]


def test_bars_of_the_parts_fill_the_bar_of_the_whole() -> None:
    rows = page_data(sample.report(), Limits())["funnel"]["rows"]
    for index, row in enumerate(rows):
        parts = []
        for below in rows[index + 1 :]:
            if below["depth"] <= row["depth"]:
                break
            if below["depth"] == row["depth"] + 1 and below["is_part"]:
                parts.append(below)
        if parts:
            assert parts[0]["left"] == row["left"]
            assert sum(part["width"] for part in parts) == pytest.approx(row["width"], abs=1e-4)
            for before, after in itertools.pairwise(parts):
                assert after["left"] == pytest.approx(before["left"] + before["width"], abs=2e-5)


def test_what_the_wall_went_into_adds_up_to_it() -> None:
    segments = page_data(sample.report(), Limits())["spent"]["lines"][0]["segments"]
    assert [tone for tone, _, _ in segments] == [
        "busy",
        "communication",
        "memcpy",
        "unknown",
        "idle",
    ]
    assert sum(share for _, share, _ in segments) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("num_devices", [1, 256])
def test_a_big_report_stays_below_400_kb_and_says_what_is_left_out(num_devices) -> None:
    name = "void kernel<" + "cutlass::gemm::device::Universal, " * 60 + ">"
    table = sample.kernel_table(20_000)
    rows = [(f"{name}{index}", *row[1:]) for index, row in enumerate(table.rows)]
    notes = [Note(f"n{i}", Severity.WARNING, name, {"at": name}) for i in range(1_000)]
    findings = [replace(sample.findings()[0], sentence=name) for _ in range(500)]
    report = replace(
        sample.with_devices(sample.report(), num_devices),
        tables=[replace(table, rows=rows, num_rows_in_all=len(rows)), sample.host_table()],
        notes=notes,
        findings=findings,
        step_funnels=[sample.funnel()] * 2_000,
        facts={f"fact{i}": name for i in range(1_000)},
        timeline=sample.timeline(5_000, num_devices),
    )
    page = html.render(report)
    assert len(page.encode()) < 400_000
    data = embedded(page)
    shown = data["tables"][0]
    assert 0 < len(shown["rows"]) < shown["num_rows_in_all"] == 20_000
    assert data["findings_left_out"] == 500 - len(data["findings"]) > 0
    assert data["notes_left_out"] == 1_000 - len(data["notes"]) > 0
    assert data["steps"]["left_out"] == 2_000 - len(data["steps"]["lines"]) > 0
    assert data["facts_left_out"] > 0


def test_texts_of_the_page_are_visible_and_cut() -> None:
    data = embedded(html.render(sample.hostile_report()))

    def walk(value) -> None:
        if isinstance(value, str):
            assert value.replace("\n", "").isprintable()
            assert len(value) <= 25_000
        for item in (
            value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        ):
            walk(item)

    walk(data)
    assert "\\u202edcba" in data["answer"][5]
    assert data["answer"][-1].endswith("… (+4,400 characters)")


def test_without_scripts_the_page_is_the_terminal_report() -> None:
    page = html.render(sample.report())
    fallback = page[page.index("<noscript>") : page.index("</noscript>")]
    assert "attention           96.02     36.7    #" in fallback
    assert "idle causes" in fallback


def test_a_lane_of_many_bins_keeps_its_sum() -> None:
    timeline = sample.timeline(1_001)
    data = page_data(replace(sample.report(), timeline=timeline), Limits(bins=100))["timeline"]
    for category, row in zip(
        data["lanes"][0]["categories"], timeline.lanes[0].busy_ns, strict=True
    ):
        span = timeline.end_ns - timeline.start_ns
        assert len(category["bins"]) == 100
        assert sum(category["bins"]) / 100_000 == pytest.approx(sum(row) / span, abs=0.001)


def test_equal_reports_give_equal_pages() -> None:
    assert html.render(sample.report()) == html.render(sample.report())


def test_a_name_like_a_placeholder_is_a_name() -> None:
    page = html.render(replace(sample.report(), headline="{{script}} {{data}} {{nothing}}"))
    assert "<title>{{script}} {{data}} {{nothing}} · tokenpath</title>" in page


def test_every_unit_has_a_scale() -> None:
    table = sample.kernel_table()
    for unit in Unit:
        columns = [replace(column, unit=unit) for column in table.columns[3:4]]
        shown = replace(table, columns=columns, rows=[(1,), (None,)])
        column = page_data(replace(sample.report(), tables=[shown]), Limits())["tables"][0][
            "columns"
        ][0]
        assert column["divisor"] > 0


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2.2 defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_keep_their_contrast_in_light_and_dark() -> None:
    style = next(
        text for tag, text in Elements(html.render(sample.empty_report())).texts if tag == "style"
    )
    palettes = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[:2]
    assert len(palettes) == 2
    for palette in palettes:
        colour = dict(re.findall(r"--([\w-]+): (#\w{6})", palette))

        def contrast(a: str, b: str, colour=colour) -> float:
            low, high = sorted((luminance(colour[a]), luminance(colour[b])))
            return (high + 0.05) / (low + 0.05)

        # WCAG 2.2: 4.5 for text (1.4.3), 3 for marks (1.4.11).
        for ground in ("paper", "card"):
            for text in ("ink", "soft", "good", "communication", "idle"):
                assert contrast(text, ground) >= 4.5, (text, ground)
            for mark in ("busy", "memcpy", "unknown", "wall"):
                assert contrast(mark, ground) >= 3, (mark, ground)
