"""What a device kernel does, told from its name alone.

``classify(name)`` returns the family (gemm, norm, communication ...), the library where the name
shows it, and the id of the rule that decided. The rules are data: ``kernel_names.toml``. They speak
of words, not of whole names, so a name that nobody has seen before is still understood.

A name becomes words in three steps:

1. split: ``void ns::fn<T, 4>(int)`` is the function ``ns::fn`` and its template arguments;
   parameters are dropped, since they name types and not work. Mangled names are read the same way;
2. words: ``fusedQKNormRope_kernel`` is ``fused qk norm rope kernel``;
3. rules: the first rule, in file order, one of whose phrases occurs among the words decides.

A rule may send the question on: to the template arguments (``elementwise_kernel<F>`` does what F
does) or to the list of operators in a name made by torch.compile.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

_RULES_FILE = Path(__file__).with_name("kernel_names.toml")

_MAX_NAME_CHARS = 4096
"""Only this much of a name is read; the word that tells the work stands near its start."""
_MAX_INSIDE_CHARS = 900
"""Only this much of the template arguments is read."""
_MAX_MEMO_WORDS = 1 << 16
"""The memo of single words stops growing here, so that hostile names cannot fill the memory."""


class Family(StrEnum):
    """What a kernel does; each is defined in ``docs/kernel-families.md``."""

    GEMM = "gemm"
    CONVOLUTION = "convolution"
    ATTENTION_PREFILL = "attention_prefill"
    ATTENTION_DECODE = "attention_decode"
    ATTENTION = "attention"
    MOE = "moe"
    SSM = "ssm"
    NORM = "norm"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCE = "reduce"
    SORT = "sort"
    INDEX = "index"
    COPY = "copy"
    POOLING = "pooling"
    RANDOM = "random"
    LOSS = "loss"
    OPTIMIZER = "optimizer"
    SAMPLING = "sampling"
    KV_CACHE = "kv_cache"
    QUANTIZE = "quantize"
    COMMUNICATION = "communication"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class KernelClass:
    """The verdict on one kernel name."""

    family: Family
    """What the kernel does; ``Family.OTHER`` when the name does not tell."""
    library: str | None
    """Who wrote it (``cublas``, ``nccl`` ...); None when the name does not tell."""
    rule: str
    """Id of the rule that decided, as in ``kernel_names.toml``; ``none`` when no rule did."""

    @property
    def is_communication(self) -> bool:
        """True for kernels that move data between devices (their kind is communication)."""
        return self.family is Family.COMMUNICATION


@dataclass(frozen=True, slots=True)
class NameParts:
    """A kernel name taken apart."""

    head: str
    """Qualified function name without return type, template arguments and parameters."""
    inside: str
    """Template arguments as text, shortened; empty when there are none."""


def classify(name: str) -> KernelClass:
    """Return the family, library and deciding rule for one kernel name, mangled or demangled."""
    return _classifier().classify(name)


def classify_many(names: Sequence[str]) -> list[KernelClass]:
    """Return one verdict per name, in order; pass distinct names, none is remembered."""
    classify_one = _classifier().classify
    return [classify_one(name) for name in names]


# --- step 1: take the name apart -----------------------------------------------------------------

_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|\(anonymous\)::")
_BRACKET = re.compile(r"[<>()]")
_CLONE = re.compile(r" ?\[clone [^\]]*\]|\.kd$|\.llvm\.\d+$")


def split_name(name: str) -> NameParts:
    """Return the function name and the template arguments of a kernel name."""
    text = name[:_MAX_NAME_CHARS].strip()
    if "." in text or "[clone" in text:
        text = _CLONE.sub("", text)
    if text.startswith("_Z"):
        return _split_mangled(text)
    if "anonymous" in text or "<unnamed>" in text:
        text = _ANONYMOUS.sub("", text)
    if "<" not in text:
        paren = text.find("(")
        return NameParts(_last_token(text[:paren] if paren > 0 else text), "")
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
    else:
        # The name ends without parameters, or was cut off inside the template arguments.
        if depth:
            inside = text[start:]
        else:
            outside.append(text[start:])
    return NameParts(_last_token("".join(outside)), inside[:_MAX_INSIDE_CHARS])


def _last_token(text: str) -> str:
    """Return ``ns::fn`` from ``void ns::fn``; names in plain words (no C++ marks) stay whole."""
    text = text.strip()
    if " " in text and ("::" in text or text.startswith(("void ", "int ", "bool "))):
        return text.rsplit(" ", 1)[1]
    return text


_MANGLED_TOKEN = re.compile(r"L[a-z]n?\d+E|S[0-9A-Z]*_|T[0-9]*_|(\d+)")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _split_mangled(text: str) -> NameParts:
    """Return head and the identifiers after it; Itanium C++ ABI names, section 5.1.2 of the ABI."""
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
    inside: list[str] = []
    num_chars = 0
    while num_chars < _MAX_INSIDE_CHARS:
        token = _MANGLED_TOKEN.search(text, at)
        if token is None:
            break
        at = token.end()
        if token.group(1) is None or len(token.group(1)) > 4:
            continue
        word = text[at : at + int(token.group(1))]
        if _IDENTIFIER.match(word):
            at += len(word)
            inside.append(word)
            num_chars += len(word) + 2
    return NameParts("::".join(head), "::".join(inside))


# --- step 2: words -------------------------------------------------------------------------------

_WORD = re.compile(
    r"[A-Z]+(?![a-z])(?:[0-9]+(?:[A-Z]+(?![a-z]))?)*"
    r"|[A-Z]?[a-z]+(?:[0-9][a-z0-9]*(?:[A-Z]+(?![a-z]))?)?"
    r"|[0-9][a-z0-9]*"
)


def split_words(text: str) -> str:
    """Return the words of a name in lower case, spaces around each, ``^`` and ``$`` at the ends."""
    if "MoE" in text:
        text = text.replace("MoE", "Moe")
    return " ^ " + " ".join(_WORD.findall(text)).lower() + " $ "


# --- step 3: rules -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rule:
    """One line of the rule file."""

    id: str
    family: Family
    any: tuple[str, ...]
    """Phrases, ready for a substring test on padded words; one must occur."""
    all: tuple[tuple[str, ...], ...]
    """Groups of phrases; of each group one must occur."""
    none: tuple[str, ...]
    """Phrases that must not occur."""
    look: str | None
    """Rule group to ask about the template arguments (or about the words, for ``ops``) first."""

    def matches(self, words: str) -> bool:
        """Return whether the rule applies to padded words."""
        for phrase in self.none:
            if phrase in words:
                return False
        for group in self.all:
            for phrase in group:
                if phrase in words:
                    break
            else:
                return False
        if not self.any:
            return True
        for phrase in self.any:
            if phrase in words:
                return True
        return False


def _expand_phrase(phrase: str) -> list[str]:
    """Return substrings to look for: ``a~b`` is ``a b`` or ``ab``; ``*`` opens a word's end."""
    variants = [""]
    for i, piece in enumerate(phrase.split("~")):
        joints = ("",) if i == 0 else ("", " ")
        variants = [v + joint + piece for v in variants for joint in joints]
    out = []
    for variant in variants:
        front = variant[1:] if variant.startswith("*") else " " + variant
        out.append(front[:-1] if front.endswith("*") else front + " ")
    return out


def _expand(phrases: str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(phrases, str):
        phrases = (phrases,)
    return tuple(variant for phrase in phrases for variant in _expand_phrase(phrase))


class _RuleGroup:
    """Ordered rules with an index from single words to the rules that they may satisfy."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self.rules = tuple(rules)
        self._whole: dict[str, int] = {}
        self._parts: dict[str, int] = {}
        self._memo: dict[str, int] = {}
        for i, rule in enumerate(rules):
            for phrase in rule.any or rule.all[0]:
                key = max(phrase.split(), key=len)
                whole = f" {key} " in phrase
                index = self._whole if whole else self._parts
                index[key] = index.get(key, 0) | 1 << i

    def find(self, words: str) -> _Rule | None:
        """Return the first rule, in file order, that matches padded words."""
        memo = self._memo
        candidates = 0
        for word in words.split():
            mask = memo.get(word)
            candidates |= self._mask_of(word) if mask is None else mask
        while candidates:
            lowest = candidates & -candidates
            rule = self.rules[lowest.bit_length() - 1]
            if rule.matches(words):
                return rule
            candidates ^= lowest
        return None

    def _mask_of(self, word: str) -> int:
        """Return the set of rules, as bits, that this word may satisfy."""
        mask = self._whole.get(word, 0)
        for part, part_mask in self._parts.items():
            if part in word:
                mask |= part_mask
        if len(self._memo) < _MAX_MEMO_WORDS:
            self._memo[word] = mask
        return mask


class _Classifier:
    """The rule groups of the file, compiled."""

    def __init__(self, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        groups = {
            group: _RuleGroup([_read_rule(row) for row in rows])
            for group, rows in tables.items()
            if group not in ("library", "drop")
        }
        self._groups = groups
        self._names = groups["name"]
        self._drop = [f" {row['phrase']} " for row in tables["drop"]]
        self._libraries = _RuleGroup(
            [_read_rule({**row, "family": "other"}) for row in tables["library"]]
        )

    def classify(self, name: str) -> KernelClass:
        """Return the verdict on one name."""
        parts = split_name(name)
        words = split_words(parts.head)
        library = self._libraries.find(words)
        for phrase in self._drop:
            words = words.replace(phrase, " ")
        rule = self._names.find(words)
        inside_words = ""
        if rule is None or rule.look is not None:
            inside_words = split_words(parts.inside)
            rule = self._look_inside(rule, words, parts.inside, inside_words)
        if library is None and inside_words:
            library = self._libraries.find(inside_words)
        return KernelClass(
            rule.family if rule else Family.OTHER,
            library.id if library else None,
            rule.id if rule else "none",
        )

    def _look_inside(
        self, rule: _Rule | None, words: str, inside: str, inside_words: str
    ) -> _Rule | None:
        """Return the rule found for the template arguments, else the one that sent us here."""
        if rule is None or rule.look is None:
            return rule
        if rule.look == "ops":
            found = self._groups["ops"].find(words)
        elif rule.look == "name":
            # The first template argument is the kernel; the ones after it are its parts.
            found = self._names.find(split_words(split_name(inside).head.split(",", 1)[0]))
            found = found or self._names.find(inside_words)
        else:
            found = self._groups[rule.look].find(inside_words)
        return rule if found is None or found.look is not None else found


def _read_rule(row: Mapping[str, Any]) -> _Rule:
    """Return one rule; ``all`` is a list of phrases or of lists of alternative phrases."""
    return _Rule(
        id=row["id"],
        family=Family(row["family"]),
        any=_expand(row.get("any", ())),
        all=tuple(_expand(group) for group in row.get("all", ())),
        none=_expand(row.get("none", ())),
        look=row.get("look"),
    )


@cache
def _classifier() -> _Classifier:
    """Return the compiled rules; the file is read once per process."""
    return _Classifier(tomllib.loads(_RULES_FILE.read_text(encoding="utf-8")))
