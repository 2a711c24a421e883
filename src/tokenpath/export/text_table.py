"""A table in a terminal: every number whole, names cut, what was left out counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.text import Text

from tokenpath.core.report import ShownTable, TableColumn, Unit
from tokenpath.export.escape import visible
from tokenpath.export.layout import fit, wrapped
from tokenpath.export.numbers import Scale, scale_of

MAX_ROWS = 25
"""Rows of a table in text; JSON and HTML have more."""
MIN_TEXT_WIDTH = 14
NAME_WIDTH = 32
"""What the first column gets before columns that are no key figures come in."""
_GAP = 2


def table_lines(table: ShownTable, width: int) -> Iterator[Text]:
    """The table in lines of at most `width` cells; says which rows and columns it leaves out."""
    yield Text(fit(visible(table.title), min(cell_len(visible(table.title)), width)), "bold")
    rows = table.rows[:MAX_ROWS]
    scales = [
        scale_of(column.unit, [row[index] for row in rows])
        for index, column in enumerate(table.columns)
    ]
    headings = [_heading(*pair) for pair in zip(table.columns, scales, strict=True)]
    cells = [[scale.write(cell) for scale, cell in zip(scales, row, strict=True)] for row in rows]
    needed = [
        max([cell_len(headings[index])] + [cell_len(row[index]) for row in cells])
        for index in range(len(headings))
    ]
    shown = _choose_columns(table.columns, needed, width)
    widths = _share_width(table.columns, needed, shown, width)
    heading = _line([headings[i] for i in shown], widths, [table.columns[i] for i in shown])
    heading.stylize("dim")
    yield heading
    for row in cells:
        yield _line([row[i] for i in shown], widths, [table.columns[i] for i in shown])
    left_out = []
    if table.num_rows_in_all > len(rows):
        left_out.append(f"{table.num_rows_in_all - len(rows):,} more rows")
    hidden = [visible(c.label) for i, c in enumerate(table.columns) if i not in shown]
    if hidden:
        left_out.append(f"columns {', '.join(hidden)}")
    remarks = [table.note] if table.note else []
    if left_out:
        elsewhere = " (see --json, --html)" if hidden or len(table.rows) > len(rows) else ""
        remarks.append(f"Not shown: {'; '.join(left_out)}{elsewhere}.")
    for remark in remarks:
        yield from wrapped(remark, width, style="dim")


def _heading(column: TableColumn, scale: Scale) -> str:
    return f"{visible(column.label)} {scale.unit}".rstrip()


def _choose_columns(columns: Sequence[TableColumn], needed: Sequence[int], width: int) -> list[int]:
    """Columns that fit: the first, then key figures, then others that leave the names readable."""
    order = sorted(range(len(columns)), key=lambda i: (i > 0, not columns[i].is_key_figure, i))
    chosen: list[int] = []
    used = 0
    name_width = 0
    for index in order:
        least = needed[index]
        if columns[index].unit is Unit.TEXT:
            least = min(least, MIN_TEXT_WIDTH)
        if not chosen:
            name_width = least
        elif not columns[index].is_key_figure:
            wanted = min(needed[order[0]], NAME_WIDTH)
            used, name_width = used + wanted - name_width, wanted
        if chosen and used + _GAP + least > width:
            continue
        used += least + (_GAP if chosen else 0)
        chosen.append(index)
    return sorted(chosen)


def _share_width(
    columns: Sequence[TableColumn], needed: Sequence[int], shown: Sequence[int], width: int
) -> list[int]:
    """The width of each shown column: numbers what they need, texts what is left, the first the most."""
    is_text = [columns[i].unit is Unit.TEXT for i in shown]
    widths = [
        min(needed[i], MIN_TEXT_WIDTH) if text else needed[i]
        for i, text in zip(shown, is_text, strict=True)
    ]
    room = width - sum(widths) - _GAP * (len(shown) - 1)
    # Short texts are made whole before the long ones share what remains.
    for position in sorted(range(len(shown)), key=lambda p: needed[shown[p]]):
        if is_text[position] and room > 0:
            more = min(needed[shown[position]] - widths[position], room)
            widths[position] += more
            room -= more
    return [max(1, min(w, width)) for w in widths]


def _line(cells: Sequence[str], widths: Sequence[int], columns: Sequence[TableColumn]) -> Text:
    parts = [
        fit(cell, width) if column.unit is Unit.TEXT else " " * (width - cell_len(cell)) + cell
        for cell, width, column in zip(cells, widths, columns, strict=True)
    ]
    return Text((" " * _GAP).join(parts))
