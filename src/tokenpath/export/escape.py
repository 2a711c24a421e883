"""Names from a trace, made safe to show: nothing invisible, nothing that steers a terminal or a page."""

from __future__ import annotations

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str, max_chars: int | None = None) -> str:
    r"""The text with every control, format, bidirectional and unpaired surrogate character written out.

    An escape character becomes `\x1b`, a right-to-left override `\u202e`, a line feed `\n`; unusual
    spaces become plain ones. Longer texts are cut after `max_chars` characters and say how much went.
    """
    num_cut = 0
    if max_chars is not None and len(text) > max_chars:
        num_cut = len(text) - max_chars
        text = text[:max_chars]
    if not text.isprintable():
        text = "".join(c if c.isprintable() else _written_out(c) for c in text)
    return f"{text}… (+{num_cut:,} characters)" if num_cut else text


def _written_out(char: str) -> str:
    if char in _SHORT:
        return _SHORT[char]
    code = ord(char)
    # Vertical tab, form feed, file separators and the line and paragraph separators are space to Python.
    if char.isspace() and code > 0x7F and code not in (0x85, 0x2028, 0x2029):
        return " "
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
