"""What a device kernel does, told from its name alone.

``classify(name)`` returns the family (gemm, norm, communication ...), the library where the name
shows it, and the id of the rule that decided. The rules are data: ``kernel_names.toml``. They speak
of words, not of whole names, so a name that nobody has seen before is still understood. The few
whose words mislead stand whole in ``kernel_names_known.toml``, which is asked first.

A name becomes a verdict in three steps (the first two are in ``kernel_words``):

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

from tokenpath.core.kernel_words import read_inside, split_name, split_words

_RULES_FILE = Path(__file__).with_name("kernel_names.toml")
_KNOWN_FILE = Path(__file__).with_name("kernel_names_known.toml")

_DSL_PREFIX = "kernel_cutlass_"
"""Names of kernels written in the CuTe DSL start so."""
_MAX_HEAD = 240
"""Only this many characters of the function name are read (Tensile appends its tuning state)."""
_MAX_LIBRARY = 100
"""Only this many characters of the words are searched for the library; it stands in front."""
_MAX_MEMO = 1 << 14
"""Memos stop growing here, so that hostile names cannot fill the memory."""


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


_YIELDING = frozenset({Family.SAMPLING, Family.GEMM})
"""A namespace that names one of these says less than a function name that names another family."""
_NOT_OWN = frozenset({Family.OTHER, Family.SOFTMAX})
"""... but for these: the softmax of a sampling library turns logits into probabilities to sample."""


@dataclass(frozen=True, slots=True)
class KernelClass:
    """The verdict on one kernel name."""

    family: Family
    """What the kernel does; ``Family.OTHER`` when the name does not tell."""
    library: str | None
    """Who wrote it (``cublas``, ``nccl`` ...); None when the name does not tell."""
    rule: str
    """Id of the rule that decided, as in ``kernel_names.toml``; ``none`` when no rule did, and
    ``known.`` with the family for a name of ``kernel_names_known.toml``."""

    @property
    def is_communication(self) -> bool:
        """True for kernels that move data between devices (their kind is communication)."""
        return self.family is Family.COMMUNICATION


def classify(name: str) -> KernelClass:
    """Return the family, library and deciding rule for one kernel name, mangled or demangled."""
    return _classifier().classify(name)


def classify_many(names: Sequence[str]) -> list[KernelClass]:
    """Return one verdict per name, in order; pass distinct names, none is remembered."""
    classify_one = _classifier().classify
    return [classify_one(name) for name in names]


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule of the file."""

    id: str
    family: Family
    any: tuple[str, ...]
    """Phrases, ready for a substring test on padded words; one must occur."""
    all: tuple[tuple[str, ...], ...]
    """Groups of phrases; of each group one must occur."""
    none: tuple[str, ...]
    """Phrases that must not occur."""
    look: str | None
    """Rule group to ask first: about the template arguments, or about the words for ``ops``."""

    def allows(self, words: str) -> bool:
        """Return whether ``all`` and ``none`` agree with padded words."""
        for phrase in self.none:
            if phrase in words:
                return False
        return all(any(phrase in words for phrase in group) for group in self.all)


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


_LETTERS = re.compile("[a-z]+")
_COMMON_WORDS = frozenset({"kernel", "cuda", "fwd", "bwd", "forward", "backward", "fused", "and"})


class _RuleGroup:
    """Ordered rules, with an index from runs of letters to the phrases that may hold them.

    Most phrases are never tested: a phrase is a candidate only if its most telling run of letters
    occurs in the name. Sets of phrases are integers, one bit each, in file order.
    """

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._phrases: list[tuple[str, _Rule]] = []
        self._whole: dict[str, int] = {}
        self._parts: dict[str, dict[str, int]] = {}
        self._memo: dict[str, int] = {}
        for rule in rules:
            for phrase in rule.any or rule.all[0]:
                bit = 1 << len(self._phrases)
                self._phrases.append((phrase, rule))
                runs = _LETTERS.findall(phrase)
                key = max(runs, key=lambda run: (run not in _COMMON_WORDS, len(run)))
                bounded = _is_bounded(key, phrase)
                index = self._whole if bounded else self._parts.setdefault(key[:2], {})
                index[key] = index.get(key, 0) | bit

    def find(self, words: str) -> _Rule | None:
        """Return the first rule, in file order, that matches padded words."""
        get = self._memo.get
        candidates = 0
        for word in set(words.split()):
            mask = get(word)
            if mask is None:
                mask = self._find_candidates(word)
            if mask:
                candidates |= mask
        phrases = self._phrases
        while candidates:
            lowest = candidates & -candidates
            phrase, rule = phrases[lowest.bit_length() - 1]
            if phrase in words and rule.allows(words):
                return rule
            candidates ^= lowest
        return None

    def _find_candidates(self, word: str) -> int:
        """Return the phrases, as bits, whose key one of the word's runs of letters holds."""
        if word.isdecimal():
            return 0  # sizes are many and tell nothing: they must not fill the memo
        mask = 0
        for run in _LETTERS.findall(word):
            mask |= self._whole.get(run, 0)
            for at in range(len(run)):
                for start in (run[at : at + 2], run[at]):
                    for part, part_mask in self._parts.get(start, {}).items():
                        if run.startswith(part, at):
                            mask |= part_mask
        if len(self._memo) < _MAX_MEMO:
            self._memo[word] = mask
        return mask


def _is_bounded(key: str, phrase: str) -> bool:
    """Return whether no further letter can touch the key where the phrase occurs."""
    at = phrase.index(key)
    before, after = phrase[:at], phrase[at + len(key) :]
    return bool(before) and bool(after)


class _Classifier:
    """The rule groups of the file, compiled."""

    def __init__(
        self,
        tables: Mapping[str, Sequence[Mapping[str, Any]]],
        known: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self._known = {
            name: _Rule(f"known.{family}", Family(family), (), (), (), None)
            for family, names in (known or {}).items()
            for name in names
        }
        groups = {
            group: _RuleGroup([_read_rule(row) for row in rows])
            for group, rows in tables.items()
            if group not in ("library", "drop")
        }
        self._groups = groups
        self._names = groups["name"]
        self._heads: dict[str, tuple[str, _Rule | None, _Rule | None]] = {}
        self._verdicts: dict[tuple[str, str | None], KernelClass] = {}
        self._drop = [f" {row['phrase']} " for row in tables["drop"]]
        self._libraries = _RuleGroup(
            [_read_rule({**row, "family": "other"}) for row in tables["library"]]
        )

    def classify(self, name: str) -> KernelClass:
        """Return the verdict on one name."""
        parts = split_name(name)
        known = self._heads.get(parts.head)
        words, rule, library = known or self._read_head(parts.head)
        if rule is not None and rule.look is not None:
            inside = read_inside(parts.inside)
            inside_words = split_words(inside)
            if library is None and rule.look == "name":
                library = self._libraries.find(inside_words)
            rule = self._look_inside(rule, words, inside, inside_words, parts.head)
        key = (rule.id if rule else "none", library.id if library else None)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = KernelClass(rule.family if rule else Family.OTHER, key[1], key[0])
            self._verdicts[key] = verdict
        return verdict

    def _read_head(self, head: str) -> tuple[str, _Rule | None, _Rule | None]:
        """Return the words of a function name, the rule and the library that they show."""
        words = split_words(head[:_MAX_HEAD])
        library = self._libraries.find(words[:_MAX_LIBRARY])
        words = self._drop_words(words)
        rule = self._find_known(head)
        if rule is None:
            rule = self._names.find(words)
            if rule is not None and rule.family in _YIELDING and "::" in head:
                # sampling::TopKKernel is a top-k, fp8_gemm::convert_kernel a conversion.
                last = head.rpartition("::")[2][:_MAX_HEAD]
                own = self._names.find(self._drop_words(split_words(last)))
                rule = own if own is not None and own.family not in _NOT_OWN else rule
        found = words, rule, library
        if len(self._heads) < _MAX_MEMO:
            self._heads[head] = found
        return found

    def _find_known(self, head: str) -> _Rule | None:
        """Return the rule that lists this function, bare or with its innermost namespace."""
        outer, _, own = head.rpartition("::")
        if own.startswith(_DSL_PREFIX):
            # kernel_cutlass_fn_tensorptrbf16...: the arguments follow the function's name.
            own = own[len(_DSL_PREFIX) :].partition("_tensorptr")[0].partition("_object_at_")[0]
        return self._known.get(f"{outer.rpartition('::')[2]}::{own}") or self._known.get(own)

    def _drop_words(self, words: str) -> str:
        """Return padded words without those that only name a library or a model."""
        for phrase in self._drop:
            words = words.replace(phrase, " ")
        return words

    def _look_inside(
        self, rule: _Rule, words: str, inside: str, inside_words: str, head: str
    ) -> _Rule:
        """Return the rule found for the template arguments, else the one that sent us here."""
        found: _Rule | None = None
        if rule.look == "ops":
            found = self._groups["ops"].find(words)
        elif rule.look == "tail":
            # Ascend: aclnnMm_CastAiCore_Cast is the Cast inside the operator Mm.
            found = self._names.find(split_words(head.rpartition("_")[2]))
        elif rule.look == "name":
            # The first template argument is the kernel; the ones after it are its parts. Its own
            # name comes before its namespaces: cutlass keeps attention in gemm::kernel.
            kernel = split_name(inside).head.split(",", 1)[0]
            if "::" in kernel:
                found = self._names.find(split_words(kernel.rpartition("::")[2]))
            found = found or self._names.find(split_words(kernel))
            found = found or self._names.find(inside_words)
        elif rule.look is not None:
            found = self._groups[rule.look].find(inside_words)
        return rule if found is None or found.family is Family.OTHER else found


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
    """Return the compiled rules; the files are read once per process."""
    return _Classifier(
        tomllib.loads(_RULES_FILE.read_text(encoding="utf-8")),
        tomllib.loads(_KNOWN_FILE.read_text(encoding="utf-8")),
    )
