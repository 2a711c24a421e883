"""A kernel name taken apart: function, template arguments, words.

Three shapes are read: demangled C++ (``void ns::fn<T, 4>(int)``), mangled C++ (``_ZN2ns2fnIfEEvv``)
and plain identifiers (``_fwd_kernel``, ``Cijk_Ailk_Bljk_SB``). Time is linear in the name.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

_MAX_NAME_CHARS = 2048
"""Only this much of a name is read; the word that tells the work stands near its start."""
_MAX_INSIDE = 280
"""Only this many characters of the template arguments are read."""
_MAX_MANGLED = 800
"""Only this many characters of a mangled name are read after the function name."""
_MAX_MEMO = 1 << 14
"""The memo stops growing here, so that hostile names cannot fill the memory."""


@dataclass(frozen=True, slots=True)
class NameParts:
    """A kernel name taken apart."""

    head: str
    """Qualified function name without return type, template arguments and parameters."""
    inside: str
    """Start of the template arguments, still mangled in a mangled name; empty without any."""


_SILENT = ("(anonymous namespace)::", "<unnamed>::", "{anonymous}::", "(anonymous)::")
_ALPHANUMERIC = string.ascii_letters + string.digits
_BRACKET = re.compile(r"[<>()]")
_CLONE = re.compile(r" ?\[clone [^\]]*\]|\.kd$")


def split_name(name: str) -> NameParts:
    """Return the function name and the template arguments of a kernel name."""
    text = name[:_MAX_NAME_CHARS].strip()
    if text.endswith((".kd", "]")):
        text = _CLONE.sub("", text)
    if text.startswith("_Z"):
        return _split_mangled(text)
    if "anonymous" in text or "<unnamed>" in text:
        for namespace in _SILENT:
            text = text.replace(namespace, "")
    if text.startswith("std::enable_if"):
        text = text.partition("::type ")[2] or text
    opening = text.find("<")
    paren = text.find("(")
    if opening < 0 or 0 < paren < opening:
        return NameParts(_last_token(text[:paren] if paren > 0 else text), "")
    if ">::" not in text:
        # No member of a class template: the name ends at the first "<". What follows the first
        # ">(" is a parameter list, of the kernel or of a functor whose name came before it.
        end = text.find(">(", opening)
        inside = text[opening + 1 : end if end > 0 else len(text)]
        return NameParts(_last_token(text[:opening]), _shorten(inside))
    return _split_demangled(text)


def _split_demangled(text: str) -> NameParts:
    """Return the text outside all brackets as head, the last outermost ``<...>`` as inside."""
    depth = 0
    outside: list[str] = []
    inside = ""
    start = 0
    for bracket in _BRACKET.finditer(text):
        at = bracket.start()
        char = text[at]
        if char in "<(":
            if depth == 0:
                outside.append(text[start:at])
                start = at + 1
                if char == "(":
                    break  # parameters: nothing after them tells the work
            depth += 1
        elif depth and not (char == ">" and text[at - 1] == "-"):
            depth -= 1
            if depth == 0:
                inside = text[start:at]
                start = at + 1
                if text[start : start + 2] != "::":
                    break
    else:
        if depth:  # the name was cut off inside the template arguments
            inside = text[start:]
    return NameParts(_last_token("".join(outside)), _shorten(inside))


def _shorten(inside: str) -> str:
    """Return the start of the template arguments, without the namespace they all share."""
    inside = inside[: 2 * _MAX_INSIDE].replace("at::native::", "")
    # Half a word would be a wrong word: "lambda" cut short is the optimizer LAMB.
    return inside[:_MAX_INSIDE].rstrip(_ALPHANUMERIC) if len(inside) > _MAX_INSIDE else inside


def _last_token(text: str) -> str:
    """Return ``ns::fn`` from ``void ns::fn``; names in plain words (no C++ marks) stay whole."""
    text = text.strip()
    if " " in text and ("::" in text or text.startswith(("void ", "int ", "bool "))):
        return text.rsplit(" ", 1)[1]
    return text


_MANGLED_REST = "_Z:"
_MANGLED_TOKEN = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T[0-9]*_|([1-9]\d{0,2})(?=[A-Za-z_])")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _split_mangled(text: str) -> NameParts:
    """Return the qualified name and the undecoded rest (Itanium C++ ABI, section 5.1)."""
    at = 2
    if text[at : at + 1] == "N":
        at += 1
    while text[at : at + 1] in ("K", "L", "V"):
        at += 1
    head: list[str] = []
    while text[at : at + 1].isdecimal() or text[at : at + 2] == "St" or text[at : at + 1] == "L":
        if not text[at].isdecimal():
            at += 2 if text[at] == "S" else 1
            continue
        end = at
        while text[end : end + 1].isdecimal() and end - at < 5:
            end += 1
        size = int(text[at:end])
        word = text[end : end + size]
        at = end + size
        if not word.startswith("_GLOBAL__N"):
            head.append(word)
    return NameParts("::".join(head), _MANGLED_REST + text[at : at + _MAX_MANGLED])


def read_inside(inside: str) -> str:
    """Return template arguments as text; of a mangled name, the identifiers in order."""
    if not inside.startswith(_MANGLED_REST):
        return inside
    words: list[str] = []
    at = len(_MANGLED_REST)
    while (token := _MANGLED_TOKEN.search(inside, at)) is not None:
        at = token.end()
        if token.group(1) is None:
            continue
        word = inside[at : at + int(token.group(1))]
        if _IDENTIFIER.match(word):
            at += len(word)
            words.append(word)
    return _shorten("::".join(words))


_WORD = re.compile(
    r"[A-Z]+(?![a-z])(?:[0-9]+(?:[A-Z]+(?![a-z]))?)*"
    r"|[A-Z]?[a-z]+(?:[0-9][a-z0-9]*(?:[A-Z]+(?![a-z]))?)?"
    r"|[0-9][a-z0-9]*"
)


_SEPARATORS = {code: " " for code in range(128) if not chr(code).isalnum()}


class _TokenWords(dict[str, str]):
    """The words of every token seen, in lower case, a space between each two."""

    def __missing__(self, token: str) -> str:
        if token.isdecimal() and token.isascii():
            return token
        # An acronym that runs into the next word would lose its last letter to it.
        token = token.replace("MoE", "Moe").replace("RNN", "Rnn")
        words = " ".join(_WORD.findall(token)).lower()
        if len(self) < _MAX_MEMO:
            self[token] = words
        return words


_token_words = _TokenWords()


def split_words(text: str) -> str:
    """Return the words of a name in lower case, spaces around each, ``^`` and ``$`` at the ends."""
    known = _token_words
    return " ^ " + " ".join([known[t] for t in text.translate(_SEPARATORS).split()]) + " $ "
