"""What each opcode of a pickle does, and which are refused."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenpath.ingest.pickle_machine import Machine

Operation = Callable[["Machine"], None]

MAX_INT_BYTES = 4096
"""Bound on the length of one integer."""
MAX_PROTOCOL = 5

_DECIMAL = re.compile(rb"[+-]?[0-9]{1,4000}L?", re.ASCII)
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = {
    b"n": b"\n",
    b"t": b"\t",
    b"r": b"\r",
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"v": b"\v",
}
_MAX_NAME = 80


# Numbers


def _decimal(machine: Machine, line: bytes) -> int:
    if _DECIMAL.fullmatch(line) is None:
        raise machine.damaged(f"no number: {_printable(line)}")
    return int(line.rstrip(b"L"))


def _int_line(machine: Machine) -> None:
    line = machine.take_line()
    truth = {b"00": False, b"01": True}.get(line)
    machine.stack.append(_decimal(machine, line) if truth is None else truth)


def _long_line(machine: Machine) -> None:
    machine.stack.append(_decimal(machine, machine.take_line()))


def _float_line(machine: Machine) -> None:
    line = machine.take_line()
    try:
        machine.stack.append(float(line))
    except ValueError:
        raise machine.damaged(f"no number: {_printable(line)}") from None


def _binary_float(machine: Machine) -> None:
    machine.stack.append(struct.unpack(">d", machine.take(8))[0])


def _binary_int(machine: Machine) -> None:
    machine.stack.append(int.from_bytes(machine.take(4), "little", signed=True))


def _long_of(num_length_bytes: int) -> Operation:
    def push(machine: Machine) -> None:
        length = machine.take_length(num_length_bytes)
        if length > MAX_INT_BYTES:
            raise machine.damaged(f"an integer of {length} bytes, more than {MAX_INT_BYTES}")
        machine.stack.append(int.from_bytes(machine.take(length), "little", signed=True))

    return push


def _unsigned_of(num_bytes: int) -> Operation:
    return lambda machine: machine.stack.append(machine.take_length(num_bytes))


# Texts and bytes


def _utf8(machine: Machine, raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise machine.damaged("a text that is not UTF-8") from None


def _text_of(num_length_bytes: int) -> Operation:
    def push(machine: Machine) -> None:
        raw = machine.take(machine.take_length(num_length_bytes))
        machine.stack.append(_utf8(machine, raw))

    return push


def _text_line(machine: Machine) -> None:
    line = machine.take_line()
    try:
        machine.stack.append(line.decode("raw-unicode-escape"))
    except UnicodeDecodeError:
        raise machine.damaged("a text with a damaged escape") from None


def _quoted_line(machine: Machine) -> None:
    """A text of Python 2, as its repr."""
    line = machine.take_line().strip()
    if len(line) < 2 or line[:1] != line[-1:] or line[:1] not in (b"'", b'"'):
        raise machine.damaged("a text without its quotes")
    machine.stack.append(_utf8(machine, _ESCAPE.sub(_unescape, line[1:-1])))


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if escape[:1] == b"x" and len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    if escape.isdigit() and max(escape) < 0x38:
        return bytes([int(escape, 8) & 0xFF])
    return _ESCAPED.get(escape, escape)


def _bytes_of(num_length_bytes: int) -> Operation:
    return lambda machine: machine.stack.append(machine.take(machine.take_length(num_length_bytes)))


def _byte_array(machine: Machine) -> None:
    machine.push_container(bytearray(machine.take(machine.take_length(8))))


# Containers


def _empty(kind: type) -> Operation:
    return lambda machine: machine.push_container(kind())


def _tuple_of(length: int) -> Operation:
    def push(machine: Machine) -> None:
        items = [machine.pop() for _ in range(length)]
        machine.push_container(tuple(reversed(items)))

    return push


def _set_item(machine: Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.update([key, value])


# Stack, memo, frame


def _pop(machine: Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.pop_mark()


def _protocol(machine: Machine) -> None:
    number = machine.take(1)[0]
    if number > MAX_PROTOCOL:
        raise machine.damaged(f"a pickle of protocol {number}")


def _frame(machine: Machine) -> None:
    # Only a promise of how many bytes follow: nothing is set aside for it.
    if machine.take_length(8) > len(machine.data) - machine.pos:
        machine.has_long_frame = True


# What is refused


def _printable(raw: bytes | str) -> str:
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    shown = "".join(c if c.isascii() and c.isprintable() else "?" for c in text[: _MAX_NAME + 1])
    return shown if len(shown) <= _MAX_NAME else shown[:_MAX_NAME] + "..."


def _global_line(machine: Machine) -> None:
    module, name = machine.take_line(), machine.take_line()
    raise machine.refused(f"the pickle asks for {_printable(module)}.{_printable(name)}")


def _stack_global(machine: Machine) -> None:
    name, module = machine.pop(), machine.pop()
    known = [_printable(part) if isinstance(part, str) else "?" for part in (module, name)]
    raise machine.refused("the pickle asks for " + ".".join(known))


def _extension_of(num_bytes: int) -> Operation:
    def refuse(machine: Machine) -> None:
        raise machine.refused(
            f"the pickle asks for extension {machine.take_length(num_bytes)} of a registry"
        )

    return refuse


def _refuse(what: str) -> Operation:
    def refuse(machine: Machine) -> None:
        raise machine.refused(f"the pickle {what}")

    return refuse


def _constant(value: Any) -> Operation:
    return lambda machine: machine.stack.append(value)


_BY_LETTER: dict[bytes, Operation] = {
    b"N": _constant(None),
    b"\x88": _constant(True),
    b"\x89": _constant(False),
    b"I": _int_line,
    b"L": _long_line,
    b"F": _float_line,
    b"G": _binary_float,
    b"J": _binary_int,
    b"K": _unsigned_of(1),
    b"M": _unsigned_of(2),
    b"\x8a": _long_of(1),
    b"\x8b": _long_of(4),
    b"S": _quoted_line,
    b"T": _text_of(4),
    b"U": _text_of(1),
    b"V": _text_line,
    b"\x8c": _text_of(1),
    b"X": _text_of(4),
    b"\x8d": _text_of(8),
    b"C": _bytes_of(1),
    b"B": _bytes_of(4),
    b"\x8e": _bytes_of(8),
    b"\x96": _byte_array,
    b"]": _empty(list),
    b"}": _empty(dict),
    b"\x8f": _empty(set),
    b")": _empty(tuple),
    b"l": lambda machine: machine.push_container(machine.pop_mark()),
    b"t": lambda machine: machine.push_container(tuple(machine.pop_mark())),
    b"d": lambda machine: machine.push_container(machine.pairs(machine.pop_mark())),
    b"\x91": lambda machine: machine.push_container(frozenset(machine.members(machine.pop_mark()))),
    b"\x85": _tuple_of(1),
    b"\x86": _tuple_of(2),
    b"\x87": _tuple_of(3),
    b"a": lambda machine: machine.extend([machine.pop()]),
    b"e": lambda machine: machine.extend(machine.pop_mark()),
    b"s": _set_item,
    b"u": lambda machine: machine.update(machine.pop_mark()),
    b"\x90": lambda machine: machine.add(machine.pop_mark()),
    b"(": lambda machine: machine.push_mark(),
    b"0": _pop,
    b"1": lambda machine: _drop(machine.pop_mark()),
    b"2": lambda machine: machine.stack.append(machine.last()),
    b"g": lambda machine: machine.recall(_decimal(machine, machine.take_line())),
    b"p": lambda machine: machine.store(_decimal(machine, machine.take_line())),
    b"q": lambda machine: machine.store(machine.take_length(1)),
    b"r": lambda machine: machine.store(machine.take_length(4)),
    b"\x80": _protocol,
    b"\x95": _frame,
    b"c": _global_line,
    b"i": _global_line,
    b"\x93": _stack_global,
    b"\x82": _extension_of(1),
    b"\x83": _extension_of(2),
    b"\x84": _extension_of(4),
    b"R": _refuse("calls a function"),
    b"b": _refuse("fills an object"),
    b"o": _refuse("makes an object"),
    b"\x81": _refuse("makes an object"),
    b"\x92": _refuse("makes an object"),
    b"P": _refuse("asks for an object kept elsewhere"),
    b"Q": _refuse("asks for an object kept elsewhere"),
    b"\x97": _refuse("asks for a buffer kept elsewhere"),
    b"\x98": _refuse("asks for a buffer kept elsewhere"),
}


def _drop(_: object) -> None:
    """Nothing: what was taken is not needed."""


OPERATIONS: dict[int, Operation] = {letter[0]: act for letter, act in _BY_LETTER.items()}
"""By opcode. Those that the machine handles itself are missing: STOP, BINGET, LONG_BINGET, MEMOIZE."""
