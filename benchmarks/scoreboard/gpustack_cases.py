"""GPUStack's performance lab: the launch command and labels of each row as a configuration that can be simulated.

Older pages give the command of every row. Newer ones (same `serve` on every row) give the final command only,
and name in the section what each row changed; what a section adds to those before it is in `_CHANGES`.
"""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm", "mindie": "mindie"}
_COMMANDS = {"vllm serve": "vllm", "sglang.launch_server": "sglang", "trtllm-serve": "trtllm"}
_QUANTISED = ("-FP8", "-AWQ")


@dataclass(frozen=True)
class Config:
    """What was launched."""

    engine: str
    model: str
    gpu: str
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    kv_dtype: str = "bf16"
    memory_share: float | None = None
    max_tokens: int | None = None
    max_seqs: int | None = None
    flags: frozenset[str] = frozenset()
    """async, batch, chunked, compile, draft, performance, prefix, triton, deepep-normal, quantised."""

    @property
    def num_settings(self) -> int:
        """Settings beyond the bare command."""
        named = (self.max_tokens, self.max_seqs, self.memory_share)
        own = sum(value is not None for value in named)
        return own + (self.kv_dtype != "bf16") + len(self.flags - {"deepep-normal"})


@dataclass(frozen=True)
class Load:
    """What was sent."""

    num_requests: int
    input_tokens: float
    """Sum over the requests that ended."""
    output_tokens: float
    concurrency: int | None
    """Most in flight; None: all at once."""
    rate_per_s: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for rows that can be compared: prompts within about a tenth."""
        size = round(10 * math.log(self.input_tokens / self.num_requests))
        return self.num_requests // 20, size, self.concurrency, self.rate_per_s


@dataclass(frozen=True)
class Row:
    """One measured row."""

    page: str
    section: str
    label: str
    config: Config
    load: Load
    out_tps: float
    is_extra: bool
    """A check of the final configuration under other loads."""


@dataclass(frozen=True)
class Page:
    """A page: its configurations under the load that they were compared on."""

    name: str
    rows: Sequence[Row] = field(default=())

    def choices(self) -> dict[Config, float]:
        """Output tokens/s of each configuration; the mean where one was measured more than once."""
        found: dict[Config, list[float]] = defaultdict(list)
        for row in self.main():
            found[row.config].append(row.out_tps)
        return {config: sum(values) / len(values) for config, values in found.items()}

    def main(self) -> list[Row]:
        """Rows under the commonest load of the comparison."""
        own = [row for row in self.rows if not row.is_extra]
        key = Counter(row.load.key for row in own).most_common(1)[0][0]
        return [row for row in own if row.load.key == key]


def read_pages(path: Path) -> list[Page]:
    """All pages of runs.csv."""
    raw: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for entry in csv.DictReader(file):
            raw[entry["file"]].append(entry)
    return [Page(name, _rows(name, entries)) for name, entries in raw.items()]


def _rows(page: str, entries: Sequence[Mapping[str, str]]) -> list[Row]:
    has_one_command = len({entry["serve"] for entry in entries}) == 1 and len(entries) > 3
    gpu = _gpu(page)
    base = _model(entries[0]["serve"])
    rows = []
    changed = Config("vllm", base, gpu)
    for entry in entries:
        name = f"{entry['section']} {entry['label']}"
        is_extra = "Other" in entry["section"] or entry["block"].startswith(("Baseline", "Optimi"))
        if has_one_command and "910b" not in page:
            changed = _changed(entry["section"], changed)
            config = changed
        else:
            config = _stated(entry, base, gpu)
        rows.append(
            Row(
                page,
                entry["section"],
                entry["label"],
                config,
                _load(entry, name, page),
                float(entry["out_tps"]),
                is_extra,
            )
        )
    return rows


def _gpu(page: str) -> str:
    found = re.search(r"/(a100|h100|h200|910b)", page)
    return found[1] if found else ""


def _load(entry: Mapping[str, str], name: str, page: str) -> Load:
    rate = re.search(r"\bRate (\d+)", name)
    is_latency = "latency" in page and "3.5" in page
    limit = float(entry["max_conc"]) if entry["max_conc"] else None
    num = int(float(entry["requests"]))
    return Load(
        num,
        float(entry["in_tokens"]),
        float(entry["out_tokens"]),
        None if is_latency or limit is None or limit >= num else int(limit),
        # The page says 8 requests/s where it names no other rate.
        (float(rate[1]) if rate else 8.0) if is_latency else None,
    )


def _model(serve: str) -> str:
    found = re.search(r"(?:vllm serve|trtllm-serve|--model-path|--model)[ =]+(\S+)", serve)
    return found[1].removeprefix("/workspace/") if found else ""


def _stated(entry: Mapping[str, str], page_model: str, gpu: str) -> Config:
    """What the command says; the engine of the label or section goes before, as commands are misplaced."""
    serve = entry["serve"]
    engine = next((e for text, e in _COMMANDS.items() if text in serve), "vllm")
    for text in (entry["section"], entry["label"]):
        named = {key for key in ENGINES if re.search(rf"\b{key}\b", text.lower())}
        if len(named) == 1:
            engine = ENGINES[named.pop()]

    def number(pattern: str) -> int | None:
        found = re.search(rf"(?:{pattern})[ =]+(\d+)", serve)
        return int(found[1]) if found else None

    tp = number("-tp|--tp|--tp-size|--tp_size") or 1
    model = _unquantised(page_model)
    suffix = next((s for s in _QUANTISED if s in _model(serve)), "")
    words = f"{entry['section']} {entry['label']}".lower()
    flags = {
        "async": "--async-scheduling" in serve,
        "chunked": "--enable_chunked_prefill" in serve,
        "compile": "--enable-torch-compile" in serve,
        "draft": "--speculative" in serve,
        "triton": "triton" in serve,
        "prefix": "prefix" in words,
        "quantised": "quantization" in words and "mindie" in words,
        "batch": "batch size tuning" in words,
    }
    ep = number("--ep-size|--ep_size") or (tp if "--enable-expert-parallel" in serve else 1)
    share = re.search(r"--gpu-memory-utilization[ =]+([\d.]+)", serve)
    return Config(
        engine,
        model if model.endswith(suffix) else model + suffix,
        gpu,
        tp=1 if "--enable-dp-attention" in serve else tp,
        pp=number("-pp") or 1,
        ep=ep,
        dp=tp if "--enable-dp-attention" in serve else 1,
        memory_share=float(share[1]) if share else None,
        max_tokens=number("--max-num-batched-tokens|--max_num_tokens"),
        flags=frozenset(name for name, is_set in flags.items() if is_set),
    )


def _unquantised(model: str) -> str:
    """GLM-4.6 is compared in FP8 only where its page starts so: the base keeps its suffix then."""
    return (
        model
        if model.startswith("zai-org/GLM") and model.endswith("-FP8")
        else model.replace("-FP8", "")
    )


def _changed(section: str, before: Config) -> Config:
    """The configuration of a row that only says what it changed."""
    for text, change in _CHANGES:
        if re.fullmatch(text, section):
            return change(before, section)
    return before


def _number_of(section: str) -> int:
    found = re.search(r"(\d+)\s*k?", section.lower())
    scale = 1024 if re.search(r"\dk", section.lower()) else 1
    return int(found[1]) * scale if found else 0


def _start(engine: str) -> Callable[[Config, str], Config]:
    def change(before: Config, _section: str) -> Config:
        model = before.model.replace("-FP8", "") if "Qwen" in before.model else before.model
        tp = 8 if "GLM" in before.model else 1
        return Config(engine, model, before.gpu, tp=tp)

    return change


def _with_words(before: Config, section: str) -> Config:
    """`A && B && C`: exactly these, on the engine that won."""
    words = section.lower()
    names = ("performance mode", "prefix cache", "speculative decoding")
    keys = ("performance", "prefix", "draft")
    flags = frozenset(key for name, key in zip(names, keys, strict=True) if name in words)
    model = _on(before).model
    if "quantization" in words and not model.endswith("-FP8"):
        model += "-FP8"
    kv = "fp8" if "kv cache dtype" in words else "bf16"
    return replace(_on(before), model=model, flags=flags, kv_dtype=kv)


def _on(before: Config) -> Config:
    """The engine that these pages went on with."""
    return before if "GLM" in before.model else replace(before, engine="vllm")


def _glm_layout(before: Config, section: str) -> Config:
    has_dp = "DP" in section
    return replace(
        before, engine="sglang", tp=1 if has_dp else 8, dp=8 if has_dp else 1,
        ep=8 if section.endswith("EP") else 1,
    )  # fmt: skip


_CHANGES = (
    ("vLLM", _start("vllm")),
    ("SGLang", _start("sglang")),
    (r"TP( \+ .*)?", _glm_layout),
    ("auto", lambda b, _: replace(b, tp=1, dp=8, ep=1, memory_share=b.memory_share or 0.75)),
    (r"0\.\d+", lambda b, s: replace(b, memory_share=float(s))),
    ("default", lambda b, _: b),
    ("8K", lambda b, _: replace(b, max_tokens=8192)),
    (r"max-running \d+", lambda b, s: replace(b, max_seqs=_number_of(s), max_tokens=None)),
    ("normal", lambda b, _: replace(b, max_seqs=256, flags=frozenset({"deepep-normal"}))),
    ("bf16", lambda b, _: replace(b, max_seqs=256, flags=frozenset())),
    ("fp8_e4m3", lambda b, _: replace(b, kv_dtype="fp8")),
    (r"(.* && .*|Quantization|Prefix Cache|Performance Mode|Speculative Decoding)", _with_words),
    (r"Size \d+", lambda b, _: replace(_on(b), flags=frozenset())),
    (r"Seqs \d+", lambda b, s: replace(_on(b), max_seqs=_number_of(s))),
    (r"\d+k", lambda b, s: replace(_on(b), max_tokens=_number_of(s))),
    (r"Max Num Seqs \d+", lambda b, s: replace(_on(b), max_seqs=_number_of(s), max_tokens=None)),
    (r"Batch Token \d+k and Seqs \d+", lambda b, s: replace(
        _on(b), max_tokens=_number_of(s), max_seqs=int(s.split()[-1]))),
)  # fmt: skip
"""Section of a newer page, and what it changes."""
