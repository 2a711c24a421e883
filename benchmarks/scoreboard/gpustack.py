"""GPUStack's performance lab: of the configurations that a page measured, is the one that we choose among the best?

Score of a page: measured output tokens/s of the configuration that we predict to be best, over the best measured
one. Column A: physics alone, fitted on other sets; Ascend NPUs by their data sheet (`gpustack_ascend`). Column
`other pages`: corrected by what physics, engines and flags turned out to be worth on the other 17 pages.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.scoreboard.board import OURS, Board, Key, Score
from benchmarks.scoreboard.gpustack_ascend import predict_ascend
from benchmarks.scoreboard.gpustack_cases import Config, Load, Page, read_pages

from tokenpath.core.errors import TokenpathError
from tokenpath.simulate.deploy import Deployed, deploy
from tokenpath.simulate.scenario import Scenario, with_settings
from tokenpath.simulate.summary import summarise
from tokenpath.simulate.workload.workload import NO_REQUEST, Workload

BOARD = Board(
    name="gpustack",
    title="GPUStack performance lab: the configuration chosen, of those measured",
    metrics=("best_out_tps", "out_tps"),
    targets={"best_out_tps": 0.05},
)
_GPUS = {"a100": "A100-SXM4-80GB", "h100": "H100-SXM5-80GB", "h200": "H200-SXM-141GB"}
_ASCEND = "910b"
_MAX_REQUESTS = 400
"""Requests simulated of the thousand measured, with the concurrency in proportion left as it is."""
_SIGMA_LOG = 1.1
"""Spread of ShareGPT's lengths as a log-normal law; means are those of the row."""
_ACCEPTANCE = (0.75, 0.6, 0.5, 0.4)
"""Of drafts 1 to 4: EAGLE-3 and MTP on chat, about what InferenceX's golden acceptance lengths say."""
_PLANNED_SEQS = 256
_FREE_SHARE = 0.9
_PRIOR_SIGMA = 0.3
"""How much a flag or engine usually brings beyond physics, as a logarithm."""
_TRUST_SIGMA = 0.5
"""How far the weight of physics may be from 1."""
_NOISE = 0.1
"""Of a measured logarithm: repeats on the pages differ by up to 8 %."""
_TIE = 0.02
"""Predictions nearer than this are alike; the configuration with more settings is taken then, as pages tune one
setting after the other and keep what did not hurt."""


def score(data: Path, seed: int, done: frozenset[Key]) -> Iterator[Score]:
    """Scores of all pages, both columns."""
    del done
    pages = read_pages(data / "serving" / "gpustack_perflab" / "runs.csv")
    physics = {page.name: predict_page(page, seed) for page in pages}
    for page in pages:
        measured = page.choices()
        best = max(measured.values())
        for column, predicted in (
            ("A", physics[page.name]),
            ("other pages", corrected(page, pages, physics)),
        ):
            chosen = choose(predicted)
            key = Key(BOARD.name, OURS, column, page.name, "best_out_tps")
            reason = None if chosen else "no configuration could be simulated"
            yield Score(key, best, measured[chosen] if chosen else None, seed, None, reason)
        for number, (config, tps) in enumerate(measured.items()):
            key = Key(BOARD.name, OURS, "A", f"{page.name} {number}", "out_tps")
            yield Score(key, tps, physics[page.name][config], seed)


def choose(predicted: Mapping[Config, float | None]) -> Config | None:
    """The configuration with the most tokens/s, the more tuned one of a tie; None without a prediction."""
    known = {config: value for config, value in predicted.items() if value is not None}
    if not known:
        return None
    best = max(known.values())
    alike = [config for config, value in known.items() if value >= best * (1 - _TIE)]
    return max(alike, key=lambda config: (config.num_settings, known[config]))


def predict_page(page: Page, seed: int) -> dict[Config, float | None]:
    """Output tokens/s by physics; None where it cannot say."""
    load = page.main()[0].load
    return {config: predict(config, load, seed) for config in page.choices()}


@functools.cache
def predict(config: Config, load: Load, seed: int) -> float | None:
    """Output tokens/s of one configuration."""
    workload = workload_of(load, seed)
    try:
        if config.gpu == _ASCEND:
            return predict_ascend(config, workload)
        # Memory is planned for few sequences: what the dry run of a thousand takes differs by release, and
        # the pages do not print block counts.
        planned = deploy(scenario_of(replace(config, max_seqs=_PLANNED_SEQS)), workload)
        scenario = replace(scenario_of(config), num_blocks=_blocks(config, planned))
        deployed = deploy(scenario, workload)
        capture = deployed.run(workload, detail="request", stops_on_overload=False).capture
    except TokenpathError as error:
        print(f"not answered: {config}: {error}")
        return None
    summary = summarise(capture)
    return None if summary is None else summary.output_tokens_per_s


def _blocks(config: Config, planned: Deployed) -> int:
    """KV blocks. TensorRT-LLM's share (0.9 unless set) is of the memory that is free once the model is loaded
    (its documentation, KvCacheConfig.free_gpu_memory_fraction), not of all.
    """
    plan = planned.memory
    if config.engine != "trtllm" or plan is None:
        return planned.num_blocks
    taken = plan.budget_bytes - plan.kv_bytes
    free = plan.budget_bytes / planned.scenario.gpu_memory_utilization - taken
    return int(_FREE_SHARE * free // plan.block_bytes)


def scenario_of(config: Config) -> Scenario:
    """The configuration in the simulator's words."""
    is_bf16 = config.model == "Qwen/Qwen3.5-35B-A3B"
    pairs = [
        f"engine={config.engine}",
        f"model={config.model}{'-FP8' if is_bf16 else ''}",
        f"gpu={_GPUS[config.gpu]}",
        *(f"{name}={getattr(config, name)}" for name in ("tp", "pp", "ep", "dp", "kv_dtype")),
    ]
    if is_bf16:
        pairs.append("quantisation=bf16")
    if config.memory_share is not None:
        pairs.append(f"gpu_memory_utilization={config.memory_share}")
    names = {
        "vllm": ("max_num_batched_tokens", "max_num_seqs"),
        "sglang": ("chunked_prefill_size", "max_running_requests"),
        "trtllm": ("max_num_tokens", "max_batch_size"),
    }[config.engine]
    # Limits of SGLang's command are for all data-parallel ranks together.
    seqs = config.max_seqs
    if config.engine == "sglang":
        if seqs is None and "draft" in config.flags:
            # SGLang's own limit under speculation where none is set (server_args.py).
            seqs = 48
        seqs = None if seqs is None else max(seqs // config.dp, 1)
    for name, value in zip(names, (config.max_tokens, seqs), strict=True):
        if value is not None:
            pairs.append(f"{name}={value}")
    if "async" in config.flags:
        pairs += ["async_steps=true", "async_scheduling=true"]
    if "chunked" in config.flags:
        pairs.append("enable_chunked_context=true")
    if "draft" in config.flags:
        pairs.append("speculation.num_drafts=" + ("3" if config.gpu == "h100" else "1"))
    scenario = with_settings(Scenario(), [p for p in pairs if not p.startswith("speculation")])
    if "draft" in config.flags:
        scenario = with_settings(scenario, [pairs[-1], f"speculation.acceptance={_ACCEPTANCE[0]}"])
    return scenario


def workload_of(load: Load, seed: int) -> Workload:
    """Requests like those sent; their number is cut where the concurrency allows."""
    random = np.random.default_rng(seed)
    num = load.num_requests
    if load.concurrency is not None and load.concurrency * 4 < num:
        num = max(min(num, _MAX_REQUESTS), load.concurrency * 4)
    means = (load.input_tokens / load.num_requests, load.output_tokens / load.num_requests)
    lengths = [_lengths(mean, num, random) for mean in means]
    gaps = np.zeros(num)
    if load.rate_per_s is not None:
        gaps = random.exponential(1e9 / load.rate_per_s, num)
    return Workload(
        name="as measured",
        state="estimated",
        arrival_ns=np.cumsum(gaps).astype(np.int64),
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        priority=np.zeros(num, np.int64),
        after=np.full(num, NO_REQUEST, np.int64),
        think_ns=np.zeros(num, np.int64),
        session=np.arange(num),
        hash_start=np.zeros(num + 1, np.int64),
        hashes=np.empty(0, np.int64),
        hash_granule_tokens=16,
        concurrency=load.concurrency,
    )


def _lengths(mean: float, num: int, random: np.random.Generator) -> np.ndarray:
    """Whole hundreds or powers of two are random prompts of one length; else ShareGPT's law."""
    if mean == round(mean) and (mean % 100 == 0 or mean >= 1024):
        return np.full(num, round(mean), np.int64)
    drawn = np.minimum(random.lognormal(0.0, _SIGMA_LOG, num), 9.0)
    return np.maximum(np.round(drawn * mean / drawn.mean()), 1).astype(np.int64)


def corrected(
    page: Page, pages: Sequence[Page], physics: Mapping[str, Mapping[Config, float | None]]
) -> dict[Config, float | None]:
    """Tokens/s, up to a factor that a page has in common, by what the other pages say of physics and flags."""
    others = [other for other in pages if other.name != page.name]
    weights = fit_effects(others, physics)
    configs = list(page.choices())
    logs = page_terms(configs, physics[page.name]) @ weights
    return {c: float(np.exp(log)) for c, log in zip(configs, logs, strict=True)}


def fit_effects(
    pages: Sequence[Page], physics: Mapping[str, Mapping[Config, float | None]]
) -> np.ndarray:
    """Weights of `page_terms`: ridge regression of log tokens/s within pages, towards trusting physics."""
    rows, targets = [], []
    for page in pages:
        measured = page.choices()
        terms = page_terms(list(measured), physics[page.name])
        logs = np.log(list(measured.values()))
        # Every page has a level of its own: only differences within it count.
        rows.append(terms - terms.mean(axis=0))
        targets.append(logs - logs.mean())
    matrix, target = np.concatenate(rows), np.concatenate(targets)
    mean = np.zeros(matrix.shape[1])
    mean[:2] = 1.0
    sigma = np.full(matrix.shape[1], _PRIOR_SIGMA)
    sigma[:2] = _TRUST_SIGMA
    pull = np.diag((_NOISE / sigma) ** 2)
    return np.linalg.solve(matrix.T @ matrix + pull, matrix.T @ target + pull @ mean)


def page_terms(configs: Sequence[Config], physics: Mapping[Config, float | None]) -> np.ndarray:
    """[configuration, term]: physics within an engine, physics between engines, engines and flags.

    Physics is better at comparing settings of one engine than engines, so each has a weight of its own.
    """
    known = [value for value in physics.values() if value]
    worst = min(known, default=1.0) / 2
    logs = np.array([np.log(physics[config] or worst) for config in configs])
    engines = np.array([config.engine for config in configs])
    by_engine = np.array([logs[engines == engine].mean() for engine in engines])
    flags = np.stack([_flags_of(config) for config in configs])
    return np.column_stack((logs - by_engine, by_engine - logs.mean(), flags))


_FLAGS = ("async", "chunked", "compile", "draft", "performance", "prefix", "triton", "quantised")


def _flags_of(config: Config) -> np.ndarray:
    """What physics may not know of a configuration."""
    engines = [config.engine == name for name in ("sglang", "trtllm", "mindie")]
    is_oss, is_old = "gpt-oss" in config.model, config.gpu == "a100"
    is_fp8 = "FP8" in config.model
    return np.array(
        [
            *engines,
            *(value and is_oss for value in engines[:2]),
            is_fp8 and not is_old,
            is_fp8 and is_old,
            "AWQ" in config.model,
            config.ep > 1,
            config.dp > 1,
            config.pp > 1,
            np.log2(config.tp * config.pp * config.dp),
            config.kv_dtype == "fp8",
            config.max_tokens is not None,
            *(flag in config.flags for flag in _FLAGS),
        ],
        dtype=np.float64,
    )


if __name__ == "__main__":
    import sys

    counts: dict[str, list[bool]] = {}
    for found in score(Path(sys.argv[1]), 0, frozenset()):
        relative = found.relative
        if found.key.metric == "best_out_tps":
            is_near = relative is not None and relative >= -0.05
            counts.setdefault(found.key.column, []).append(is_near)
        said = "-" if relative is None else f"{100 * relative:+6.1f} %"
        print(f"{found.key.column:12} {found.key.metric:13} {found.key.run:36} {said}", flush=True)
    for column, hits in counts.items():
        print(f"{column}: {sum(hits)} of {len(hits)} pages within 5 % of the best")
