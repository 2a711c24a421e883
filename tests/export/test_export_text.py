from __future__ import annotations

import re
from dataclasses import replace

import pytest
import sample
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tokenpath.core.finding import Kind, Status
from tokenpath.core.report import Funnel, FunnelRow, Note, Severity, ShownTable, TableColumn, Unit
from tokenpath.export import text, wording
from tokenpath.export.escape import visible
from tokenpath.export.numbers import scale_of
from tokenpath.export.tone import Tone, tones

ANSI = re.compile(r"\x1b\[[0-9;]*m")
FUNNEL_LINE = re.compile(
    r"^ *(?P<label>\S.*?) +(?P<ms><?[\d,]+\.\d\d)( ms)? +(?P<percent><?[\d.]+)"
)


def funnel_lines(shown: str) -> list[re.Match[str]]:
    lines = shown.split("\n")
    first = next(i for i, line in enumerate(lines) if line.startswith("wall"))
    matches = []
    for line in lines[first : lines.index("", first)]:
        match = FUNNEL_LINE.match(line)
        if match:
            matches.append(match)
    return matches


def test_the_sketch() -> None:
    shown = text.render(sample.report())
    assert shown.startswith("vLLM decode · 1 x NVIDIA H100 80GB HBM3 · 24 steps, 261.90 ms")
    expected = """\
wall                   261.90 ms 100.0 %  ######################################
  busy                 233.41     89.1    ##################################
    attention           96.02     36.7    ##############
    gemm                81.35     31.1    ############
    norm                14.48      5.5    ##
    elementwise          9.91      3.8    #
    sampling             7.35      2.8    #
    communication       24.20      9.2    ####  exposed 24.20
    memcpy               0.10     <0.1    #  exposed 0.10
    overlapped           3.11      1.2    ran under compute, beside the sum
  idle                  28.49     10.9    ####
    host not ready      21.87      8.4    ###  in 1,934 gaps, p50 9.1 us, after:
                                               aten::copy_, sampler
    launch latency       4.12      1.6    #  in 812 gaps, p50 4.6 us
    gap inside a graph   2.50      1.0    #
    unattributed        <0.01     <0.1    #

findings, by what fixing them would bring
 1  launch-bound           21.40 ms +- 1.10 (replayed)  of 21.87 ms (8.4 %)
    812 launches a step at 5.1 us each; 97 % of the gaps end with a late launch.
    fix       capture decode in CUDA graphs (vLLM: leave out --enforce-eager)
    check     a replay with launches at 0 us that leaves the wall where it is
    evidence  1,934 rows of kernel, worst: 812, 4051, 77
    more      tokenpath explain --about launch-bound
 2  exposed-communication  3.90 ms ceiling              of 24.20 ms (9.2 %)
"""
    assert expected in shown


def test_answer_funnel_findings_dismissed_notes_in_this_order() -> None:
    shown = text.render(sample.report(), details=True)
    marks = ["vLLM decode", "The GPU waited", "\nwall ", "\nfindings,", "\nnot worth it", "\nnotes\n  info",
             "\nidle causes", "\nkernels", "\nhost calls"]  # fmt: skip
    positions = [shown.index(mark) for mark in marks]
    assert positions == sorted(positions)


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize(
    "report", [sample.report, sample.empty_report, sample.unusable_report, sample.hostile_report]
)
def test_no_line_is_wider_than_the_terminal(width, report) -> None:
    for color in (False, True):
        shown = ANSI.sub("", text.render(report(), width=width, color=color, details=True))
        assert max(cell_len(line) for line in shown.split("\n")) <= width


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_number_of_the_funnel_is_the_reports(width) -> None:
    funnel = sample.funnel()
    matches = funnel_lines(text.render(sample.report(), width=width))
    assert len(matches) == len(funnel.rows)
    for match, row in zip(matches, funnel.rows, strict=True):
        assert match["label"] == row.label
        if match["ms"] == "<0.01":
            assert 0 < row.duration_ns < 5_000
        else:
            assert float(match["ms"].replace(",", "")) == pytest.approx(
                row.duration_ns / 1e6, abs=0.005
            )
        if not match["percent"].startswith("<"):
            share = 100 * row.duration_ns / funnel.wall_ns
            assert float(match["percent"]) == pytest.approx(share, abs=0.05)


@given(
    st.lists(st.integers(0, 10**13), min_size=1, max_size=8),
    st.integers(40, 160),
)
def test_numbers_line_up_and_nothing_becomes_zero(parts, width) -> None:
    rows = [FunnelRow("wall", "wall", 0, sum(parts))]
    rows += [FunnelRow(f"p{i}", f"part {i}", 1, part) for i, part in enumerate(parts)]
    report = replace(sample.report(), funnel=Funnel("total", rows))
    shown = text.render(report, width=width)
    start = shown.index("\nwall ") + 1
    lines = shown[start : shown.index("\n\n", start)].split("\n")
    assert len(lines) == len(rows)
    ends = set()
    for line, row in zip(lines, rows, strict=True):
        number = re.search(r"[<\d][\d,.]*", line[8:])
        assert number is not None
        ends.add(8 + number.end())
        written = number[0]
        assert (written.strip("0.,") == "") == (row.duration_ns == 0)
    assert len(ends) == 1


def test_plain_text_is_the_coloured_text_without_colour() -> None:
    plain = text.render(sample.report(), details=True)
    coloured = text.render(sample.report(), details=True, color=True)
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    assert ANSI.sub("", coloured).replace("█", "#") == plain


def test_the_environment_changes_nothing(monkeypatch) -> None:
    expected = text.render(sample.report(), color=True)
    for name, value in (
        ("COLUMNS", "20"),
        ("NO_COLOR", "1"),
        ("TERM", "dumb"),
        ("FORCE_COLOR", "1"),
    ):
        monkeypatch.setenv(name, value)
    assert text.render(sample.report(), color=True) == expected


def test_hostile_names_reach_the_terminal_as_text() -> None:
    shown = text.render(sample.hostile_report(), details=True)
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "\\x1b[31mred\\x1b[0m" in shown
    assert "\\u202edcba" in shown
    assert "[bold red]markup[/bold red] :smile:" in shown
    assert "(+4,000 characters)" in shown
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain ünïcode 漢字", "plain ünïcode 漢字"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\x1b[0m\x9b\x00\x7f", "\\x1b[0m\\x9b\\x00\\x7f"),
        ("\u202e\u2066\u200b\ufeff", "\\u202e\\u2066\\u200b\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u00a0b\u2003c\u2028d\u0085", "a b c\\u2028d\\x85"),
    ],
)
def test_visible(raw, shown) -> None:
    assert visible(raw) == shown


@given(st.text(st.characters(), max_size=40))
def test_visible_is_printable_and_stable(raw) -> None:
    once = visible(raw)
    assert once.isprintable()
    assert visible(once) == once


def test_a_withheld_number_says_why() -> None:
    shown = text.render(sample.unusable_report())
    assert "funnel  withheld: 61 % of the kernels end before they start" in shown
    assert "This capture is unusable: end-before-start, no-host; see the notes." in shown
    assert "withheld:  61 % of the kernels" in shown


def test_an_empty_report_is_short() -> None:
    assert text.render(sample.empty_report(), details=True) == "no device work\n"


def test_a_report_that_is_not_measured_says_so_at_the_top() -> None:
    shown = text.render(replace(sample.report(), state="synthetic"))
    assert shown.split("\n")[2].startswith("SYNTHETIC: the input was generated")
    shown = text.render(replace(sample.report(), state="simulated"))
    assert "SIMULATED" in shown.split("\n")[2]


def test_gains_name_their_method_and_state() -> None:
    finding = sample.findings()[0]
    assert wording.gain(finding) == "21.40 ms +- 1.10 (replayed)"
    assert wording.gain(replace(finding, gain_interval_ns=(10_000_000, 22_000_000))) == (
        "21.40 ms, 10.00 to 22.00 (replayed)"
    )
    assert wording.gain(replace(finding, status=Status.SYNTHETIC, gain_interval_ns=None)) == (
        "21.40 ms (replayed, synthetic)"
    )
    assert (
        wording.gain(replace(finding, gain_method="ceiling", gain_interval_ns=None))
        == "21.40 ms ceiling"
    )
    assert wording.gain(replace(finding, gain_ns=None)) == "gain unknown"
    assert wording.gain(replace(finding, gain_ns=None, kind=Kind.QUALITY)) == "about the capture"
    assert wording.gain(sample.findings()[3]) == "cannot tell"


def test_devices_get_a_line_each() -> None:
    shown = text.render(sample.with_devices(sample.report(), 3), details=True)
    assert "by device  wall ms     busy     idle\n  GPU 0     261.90   89.1 %   10.9 %\n" in shown
    assert shown.count("\nGPU ") == 3


def test_a_table_counts_what_it_leaves_out() -> None:
    shown = text.render(replace(sample.report(), tables=[sample.kernel_table(100)]), details=True)
    assert "Not shown: 75 more rows; columns" in shown
    narrow = text.render(sample.report(), width=60, details=True)
    assert "columns family, p50, occupancy," in narrow


def test_a_table_says_unknown_and_keeps_every_digit() -> None:
    columns = [TableColumn("a", "a", Unit.TEXT), TableColumn("b_bytes", "b", Unit.BYTES),
               TableColumn("c", "c", Unit.COUNT), TableColumn("d", "d", Unit.NUMBER)]  # fmt: skip
    rows = [("x", 3 * 2**30, 1_234_567, 0.5), ("y", None, None, None), ("z", 2**20, 0, 12.25)]
    table = ShownTable("t", "title", columns, rows, 3)
    shown = text.render(replace(sample.empty_report(), tables=[table]), details=True)
    assert shown.endswith(
        "title\na     b MiB          c      d\nx  3,072.00  1,234,567   0.50\n"
        "y         -          -      -\nz      1.00          0  12.25\n"
    )


def test_a_column_has_one_unit_that_fits_its_largest_value() -> None:
    assert scale_of(Unit.NS, [96_020_000, 5]).write(5) == "<0.01"
    assert scale_of(Unit.NS, [9_100, None]).write(9_100) == "9,100"
    assert scale_of(Unit.NS, [412_000]).write(412_000) == "412.0"
    assert scale_of(Unit.SHARE, [0.5]).write(0.5) == "50.0"
    assert scale_of(Unit.NUMBER, [float("nan")]).write(float("nan")) == "-"
    assert scale_of(Unit.NS, []).write(None) == "-"


def test_below_idle_everything_is_waiting() -> None:
    keys = [("wall", 0), ("busy", 1), ("compute", 2), ("gemm", 3), ("copy", 3), ("communication", 2),
            ("memcpy", 2), ("idle", 1), ("collective_wait", 2), ("host_memcpy", 2), ("unattributed", 2)]  # fmt: skip
    busy, idle = Tone.BUSY, Tone.IDLE
    assert tones([FunnelRow(key, key, depth, 1) for key, depth in keys]) == [
        Tone.WALL, busy, busy, busy, busy, Tone.COMMUNICATION, Tone.MEMCPY, idle, idle, idle, Tone.UNKNOWN,
    ]  # fmt: skip


def test_a_short_wall_is_written_in_its_own_unit() -> None:
    rows = [FunnelRow("wall", "wall", 0, 812_400), FunnelRow("busy", "busy", 1, 812_400)]
    shown = text.render(replace(sample.report(), funnel=Funnel("total", rows)))
    assert "wall   812.4 us 100.0 %" in shown


def test_a_note_without_effect_on_numbers_is_not_a_reason_for_distrust() -> None:
    notes = [Note("a", Severity.INFO, "fine"), Note("b", Severity.WARNING, "less fine")]
    report = replace(sample.unusable_report(), notes=notes)
    assert "This capture is unusable: b; see the notes." in text.render(report)
