"""What is simulated: model, part, layout, engine and its settings, replicas and router, limits.

A `Scenario` is plain data: every field can be set by its name (`--set tp=2`), every setting of the engine by
the engine's own name for it (`--set max_num_seqs=64`), and what is around the engines by a dotted name
(`--set router.policy=kv-aware`). `deploy` makes it run.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any

from tokenpath.core.errors import UsageError
from tokenpath.core.units import parse_duration_ns
from tokenpath.simulate.engines import settings_class
from tokenpath.simulate.settings import Settings
from tokenpath.simulate.summary import Slo

_SECTIONS = ("engine_settings", "decode_settings", "cluster", "slo")
_DECODE = "decode."
_NOT_OF_DECODE = ("engine", "replicas", "decode_replicas", "late_replicas")


@dataclass(frozen=True, slots=True)
class Scenario:
    """One deployment under one load; defaults are one replica of vLLM on one GPU."""

    model: str | None = None
    """Name in the catalogue, or path of a config.json; None only with a step model and block count."""
    gpu: str | None = None
    """Accelerator by any name that it goes by; None likewise."""
    engine: str = "vllm"
    """One of `engines.ENGINES`."""
    engine_version: str | None = None
    """As the engine prints it; None: the newest whose rules are known."""
    tp: int = 1
    """Tensor-parallel ranks of a replica."""
    pp: int = 1
    """Pipeline stages of a replica."""
    dp: int = 1
    """Data-parallel attention ranks of a replica; they step together."""
    ep: int = 1
    """Groups that experts are spread over."""
    quantisation: str | None = None
    """How weights are stored; None: as the model is published."""
    kv_dtype: str = "bf16"
    """Type of the KV cache."""
    expert_imbalance: float | None = None
    """Load of the busiest expert rank over the mean; None: what was fitted."""
    gpu_memory_utilization: float = 0.9
    """Share of the device's memory that the engine may use."""
    num_blocks: int | None = None
    """KV blocks of a scheduler as the engine printed them; None: from the memory plan."""
    replicas: int = 1
    """Replicas behind the router; of prefill, where `decode_replicas` are named."""
    decode_replicas: int = 0
    """Replicas that only decode; 0: every replica does both."""
    late_replicas: int = 0
    """Further replicas whose start begins with the run; ready after `cold_start`."""
    async_steps: bool | None = None
    """Whether vLLM decides a step while the one before runs; None: as its releases since 0.14 do where steps
    come from physics, not at all under a step model of one's own. The other engines' schedulers look ahead
    themselves."""
    engine_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the engine by its own names, typed."""
    decode_settings: Sequence[str] = ()
    """`key=value` in which decode replicas differ from those of prefill: `--set decode.KEY=VALUE`."""
    cluster: Settings = field(default_factory=Settings)
    """What is around the engines, by dotted name: `router.policy`, `transfer.link`, `tiers.host_bytes`, ..."""
    slo: Slo = field(default_factory=Slo)
    """Limits that a request must keep."""

    def __post_init__(self) -> None:
        """UsageError for numbers that no deployment has."""
        for name, least in (("replicas", 1), ("decode_replicas", 0), ("late_replicas", 0)):
            if getattr(self, name) < least:
                raise UsageError(
                    f"{name} is {getattr(self, name)}",
                    allowed=f"{least} or more",
                    next_step=f"{name}={least} is the nearest that works",
                )
        settings_class(self.engine)

    @property
    def of_decode(self) -> Scenario:
        """The decode replicas as a deployment of their own."""
        alone = replace(
            self,
            replicas=self.decode_replicas,
            decode_replicas=0,
            late_replicas=0,
            decode_settings=(),
        )
        return with_settings(alone, self.decode_settings)


def with_settings(scenario: Scenario, pairs: Iterable[str]) -> Scenario:
    """The scenario with `key=value` texts applied, in order; UsageError for a name or value that is none."""
    for pair in pairs:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not (name and equals):
            raise UsageError(
                f"{pair!r} is no setting", where="--set", allowed="key=value, e.g. tp=2"
            )
        if name.startswith(_DECODE):
            scenario = _with_decode(scenario, name.removeprefix(_DECODE), text)
            continue
        if "." in name:
            scenario = replace(scenario, cluster=scenario.cluster.with_values([pair]))
            continue
        own, engine = _fields(Scenario), _fields(settings_class(scenario.engine))
        if name in own:
            scenario = replace(scenario, **{name: _value(name, text, own[name])})
        elif name in engine:
            value = _value(name, text, engine[name])
            settings = {**scenario.engine_settings, name: value}
            scenario = replace(scenario, engine_settings=settings)
        else:
            known = [*own, *engine, *Settings.names()]
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            raise UsageError(
                f"no setting {name!r} of {scenario.engine}",
                where="--set",
                allowed=", ".join(sorted(known)),
                next_step=f"nearest: {', '.join(near)}" if near else None,
            )
    return scenario


def _with_decode(scenario: Scenario, name: str, text: str) -> Scenario:
    """The scenario with a setting of its decode replicas alone."""
    if "." in name or name in _NOT_OF_DECODE:
        raise UsageError(
            f"decode replicas have no {name!r} of their own",
            where="--set",
            allowed="decode.KEY=VALUE with settings of a replica: tp, gpu, num_blocks, max_num_seqs, ...",
        )
    pair = f"{name}={text}"
    with_settings(replace(scenario, decode_settings=()), [pair])
    return replace(scenario, decode_settings=(*scenario.decode_settings, pair))


_RECORDED = {"chunked_prefill": "enable_chunked_prefill", "prefix_caching": "enable_prefix_caching"}
"""Names in an engine's own record of its settings that differ from those of its command line."""


def scenario_of(recorded: Mapping[str, str], engine: str = "vllm") -> Scenario:
    """The scenario that a capture's recorded settings describe; what it does not know is left out."""
    settings = {_RECORDED.get(name, name): text for name, text in recorded.items()}
    scenario = Scenario(engine=engine, engine_version=recorded.get(engine))
    own = _fields(settings_class(engine))
    names = [name for name in settings if name in own or name == "num_blocks"]
    return with_settings(scenario, [f"{name}={settings[name]}" for name in names])


def parse_slo(text: str) -> Slo:
    """`ttft=500ms,tpot=50ms,e2e=10s`; UsageError for anything else."""
    found: dict[str, int] = {}
    for pair in text.split(","):
        name, _, value = (part.strip() for part in pair.partition("="))
        key = f"{name}_ns"
        try:
            if key not in ("ttft_ns", "tpot_ns", "e2e_ns") or key in found:
                raise ValueError(name)
            found[key] = parse_duration_ns(value)
            if found[key] <= 0:
                raise ValueError(value)
        except ValueError:
            raise UsageError(
                f"{pair.strip()!r} is no limit",
                where="--slo",
                allowed="ttft=500ms,tpot=50ms,e2e=10s, any of them, each above 0",
            ) from None
    return Slo(**found)


def _fields(of: type[Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(of)
    return {f.name: hints[f.name] for f in dataclasses.fields(of) if f.name not in _SECTIONS}


def _value(name: str, text: str, kind: Any) -> Any:
    """The text as a value of the field's type."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text.lower() in ("none", ""):
        return None
    try:
        if bool in kinds:
            return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
        if int in kinds and float not in kinds:
            return parse_duration_ns(text) if name.endswith("_ns") else int(text)
        return float(text) if float in kinds else text
    except (ValueError, KeyError):
        words = {bool: "true or false", int: "a whole number", float: "a number"}
        allowed = next((words[k] for k in (bool, int, float) if k in kinds), "text")
        raise UsageError(f"{text!r} for {name}", where="--set", allowed=allowed) from None
