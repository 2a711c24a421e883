"""The report of a terminal: answer first, numbers that line up, nothing wider than the terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tokenpath.core.finding import Finding
from tokenpath.core.report import Funnel, Note, Report, Severity
from tokenpath.export import wording
from tokenpath.export.escape import visible
from tokenpath.export.layout import fit, wrapped
from tokenpath.export.numbers import duration_scale
from tokenpath.export.text_table import table_lines
from tokenpath.export.tone import Tone, tones

MIN_WIDTH = 40
"""Narrower terminals get lines of this width."""
PROSE_WIDTH = 100
"""Longer lines are hard to read, however wide the terminal."""
BAR_WIDTH = 40
MIN_BAR_WIDTH = 4
MAX_STEP_FUNNELS = 24

_TONE_STYLES = {
    Tone.WALL: "default",
    Tone.BUSY: "blue",
    Tone.COMMUNICATION: "yellow",
    Tone.MEMCPY: "magenta",
    Tone.IDLE: "red",
    Tone.UNKNOWN: "bright_black",
}
_SEVERITY_STYLES = {Severity.INFO: "dim", Severity.WARNING: "yellow", Severity.WITHHELD: "bold red"}


def render(report: Report, *, width: int = 80, color: bool = False, details: bool = False) -> str:
    """The report as text, each line at most `width` cells (at least 40), ending in a line feed.

    Without `color` it is plain text; with it bars are solid and ANSI colours mark what time went into.
    `details` adds the funnel of each device and step and the tables (idle causes, kernels, host)
    that are not part of the answer.
    """
    width = max(width, MIN_WIDTH)
    sections = [
        _head(report, width),
        *(table_lines(table, width) for table in report.tables if table.is_lead),
        _funnel_section(report, width, color),
        _overview("by device", report.device_funnels, width),
        *(_funnel(funnel, width, color) for funnel in report.request_funnels),
        _findings_section(report, width),
        _dismissed(report, width),
        _notes(report.notes, width),
    ]
    if details:
        sections += [_funnel(funnel, width, color) for funnel in report.device_funnels]
        sections.append(_overview("by step", report.step_funnels[:MAX_STEP_FUNNELS], width))
        sections += [table_lines(table, width) for table in report.tables if not table.is_lead]
    return _write(sections, width, color)


def _write(sections: Iterable[Iterable[Text]], width: int, color: bool) -> str:
    lines: list[Text] = []
    for section in sections:
        for index, line in enumerate(section):
            if index == 0 and lines:
                lines.append(Text())
            line.rstrip()
            lines.append(line)
    if not color:
        return "".join(f"{line.plain}\n" for line in lines)
    sink = io.StringIO()
    # An empty environment: COLUMNS, NO_COLOR or TERM must not change what the caller asked for.
    console = Console(
        file=sink,
        width=width,
        color_system="standard",
        force_terminal=True,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return sink.getvalue()


def _head(report: Report, width: int) -> Iterator[Text]:
    prose = min(width, PROSE_WIDTH)
    yield from wrapped(report.headline, width, style="bold")
    yield from wrapped(wording.state_sentence(report), prose, style="bold magenta")
    yield from wrapped(wording.trust_sentence(report), prose, style="bold yellow")
    for index, sentence in enumerate(report.answer):
        if index == 0:
            yield Text()
        yield from wrapped(sentence, prose)


def _funnel_section(report: Report, width: int, color: bool) -> Iterator[Text]:
    if report.window is not None:
        text = wording.window_text(report.window)
        yield from wrapped(text, width, "window  ", " " * 8, "dim")
    if report.funnel is not None:
        yield from _funnel(report.funnel, width, color, with_title=False)
        return
    yield from wrapped(wording.withheld_reason(report), width, "funnel  ", " " * 8)


def _funnel(funnel: Funnel, width: int, color: bool, with_title: bool = True) -> Iterator[Text]:
    if with_title:
        yield from wrapped(funnel.title, width, style="bold")
    wall_ns = funnel.wall_ns
    scale = duration_scale(wall_ns)
    labels = ["  " * row.depth + visible(row.label) for row in funnel.rows]
    numbers = [scale.write(row.duration_ns) for row in funnel.rows]
    number_width = max(map(len, numbers))
    unit_width = len(scale.unit)
    figures = number_width + unit_width + len("   100.0 %  ")
    label_width = min(max(map(cell_len, labels)), width * 2 // 5, width - figures - MIN_BAR_WIDTH)
    lead = label_width + figures
    bar_width = min(width - lead, BAR_WIDTH)
    for index, (row, tone) in enumerate(zip(funnel.rows, tones(funnel.rows), strict=True)):
        # The units stand once, as in a column of a printed table.
        unit, percent = (scale.unit, "%") if index == 0 else ("", " ")
        line = Text.assemble(
            (fit(labels[index], label_width), "bold" if row.depth < 2 else ""),
            f" {numbers[index]:>{number_width}} {unit:<{unit_width}}",
            f" {wording.percent(row.duration_ns, wall_ns):>5} {percent}  ",
        )
        bar = ""
        if row.is_part:
            bar = _bar(row.duration_ns, wall_ns, bar_width, color)
            line.append(bar, _TONE_STYLES[tone])
        remarks = [row.note or "", "" if row.is_part else wording.NOT_IN_SUM]
        remark = ", ".join(filter(None, remarks))
        yield from _with_remark(line, lead, cell_len(bar), remark, width, 2 * row.depth + 4)


def _with_remark(
    line: Text, lead: int, bar: int, remark: str, width: int, indent: int
) -> Iterator[Text]:
    """The remark behind the bar; below it where it would be torn into shreds."""
    if not remark:
        yield line
        return
    column = lead + bar + 2 if bar else lead
    if width - column < 24 and width - column < cell_len(visible(remark)):
        yield line
        column = lead if width - lead >= 24 else indent
        line = Text(" " * column)
    for index, part in enumerate(wrapped(remark, width - column, style="dim")):
        if index == 0:
            line.pad_right(column - line.cell_len)
            yield Text.assemble(line, part)
        else:
            yield Text.assemble(" " * column, part)


def _bar(part: int, whole: int, width: int, color: bool) -> str:
    """Rounded to the nearest mark; what is there at all gets one, so that nothing vanishes."""
    if whole <= 0 or part <= 0:
        return ""
    return ("█" if color else "#") * max(1, min(width, round(width * part / whole)))


def _overview(title: str, funnels: Sequence[Funnel], width: int) -> Iterator[Text]:
    """One line a funnel: its wall and the shares of its first level."""
    if not funnels:
        return
    scale = duration_scale(max(funnel.wall_ns for funnel in funnels))
    names = list(
        dict.fromkeys(row.label for funnel in funnels for row in funnel.rows if row.depth == 1)
    )
    columns = [max(len(visible(name)), 7) for name in names]
    walls = [scale.write(funnel.wall_ns) for funnel in funnels]
    wall_width = max(*map(len, walls), len("wall ") + len(scale.unit))
    while names and 12 + wall_width + sum(w + 2 for w in columns) > width:
        names.pop()
        columns.pop()
    room = width - wall_width - sum(w + 2 for w in columns) - 2
    labels = [f"  {visible(funnel.title)}" for funnel in funnels]
    label_width = min(max(cell_len(title), *map(cell_len, labels)), room)
    head = Text.assemble((fit(title, label_width), "bold"))
    head.append(f"  {'wall ' + scale.unit:>{wall_width}}", "dim")
    for name, column in zip(names, columns, strict=True):
        head.append(f"  {visible(name):>{column}}", "dim")
    yield head
    for funnel, label, wall in zip(funnels, labels, walls, strict=True):
        line = Text(f"{fit(label, label_width)}  {wall:>{wall_width}}")
        for name, column in zip(names, columns, strict=True):
            parts = [r.duration_ns for r in funnel.rows if r.depth == 1 and r.label == name]
            cell = f"{wording.percent(sum(parts), funnel.wall_ns)} %" if parts else "-"
            line.append(f"  {cell:>{column}}")
        yield line


def _findings_section(report: Report, width: int) -> Iterator[Text]:
    if not report.findings:
        return
    yield from wrapped("findings, by what fixing them would bring", width, style="bold")
    gains = [wording.gain(finding) for finding in report.findings]
    code_width = max(len(finding.code) for finding in report.findings)
    gain_width = max(map(len, gains))
    digits = len(str(len(report.findings)))
    for index, (finding, worth) in enumerate(zip(report.findings, gains, strict=True)):
        number = f" {index + 1:>{digits}}  "
        yield from _finding(finding, number, code_width, worth, gain_width, width)


def _finding(
    finding: Finding, number: str, code_width: int, worth: str, gain_width: int, width: int
) -> Iterator[Text]:
    indent = " " * len(number)
    title = Text.assemble((number, "bold"), (finding.code.ljust(code_width), "bold cyan"))
    explained = wording.explained(finding)
    worth_style = "bold green" if finding.gain_ns else "dim"
    full = f"  {worth:<{gain_width}}  {explained}"
    if title.cell_len + len(full.rstrip()) <= width:
        title.append(full[: 2 + gain_width], worth_style).append(full[2 + gain_width :], "dim")
        yield title
    else:
        yield title
        yield from wrapped(worth, width, indent, indent, worth_style)
        yield from wrapped(explained, width, indent, indent, "dim")
    yield from wrapped(finding.sentence, min(width, PROSE_WIDTH), indent, indent)
    for label, text in wording.support(finding):
        yield from wrapped(text, width, f"{indent}{label:<10}", indent + " " * 10, "dim")


def _dismissed(report: Report, width: int) -> Iterator[Text]:
    if report.dismissed:
        yield from wrapped(", ".join(report.dismissed), width, "not worth it  ", " " * 14, "dim")


def _notes(notes: Sequence[Note], width: int) -> Iterator[Text]:
    if not notes:
        return
    yield Text("notes", "bold")
    label_width = max(len(wording.note_label(note)) for note in notes)
    for note in notes:
        label = f"  {wording.note_label(note):<{label_width}}  "
        for index, line in enumerate(
            wrapped(f"{note.sentence} [{note.code}]", width, label, " " * len(label))
        ):
            if index == 0:
                line.stylize(_SEVERITY_STYLES[note.severity], 0, len(label))
            yield line
