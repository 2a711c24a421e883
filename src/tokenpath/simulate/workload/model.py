"""A workload as a model: a small JSON file that draws workloads of any size, with its error on what it was not fitted to.

Version 1: first release.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tokenpath.core.errors import DamagedInput, UsageError
from tokenpath.simulate.workload import arrivals, chains, changing_rates, lengths
from tokenpath.simulate.workload.arrivals import ArrivalProcess, AtOnce
from tokenpath.simulate.workload.chains import Reuse
from tokenpath.simulate.workload.generate import SharedPrefix, closed_loop_of, of_columns, open_loop
from tokenpath.simulate.workload.lengths import PairLaw
from tokenpath.simulate.workload.sessions import Sessions, sessions
from tokenpath.simulate.workload.workload import Workload

FORMAT = "tokenpath.workload_model"
VERSION = 1
MAX_MODEL_BYTES = 2**26

_KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        arrivals.AtOnce, arrivals.Constant, arrivals.Poisson, arrivals.Gamma, arrivals.Weibull,
        arrivals.Diurnal, changing_rates.RateTable, changing_rates.MarkovModulated, changing_rates.Pieces,
        changing_rates.Stages,
        lengths.Fixed, lengths.Uniform, lengths.Lognormal, lengths.BodyAndTail, lengths.Table,
        lengths.Quantiles, lengths.Sample, lengths.TwoLaws, chains.Reuse, Sessions, SharedPrefix,
    )
}  # fmt: skip
"""What may stand in a model file, by the name of its `kind`."""


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """What draws workloads like one that was measured."""

    name: str
    """What it was fitted to."""
    num_requests: int
    """Requests that it was fitted to."""
    arrivals: ArrivalProcess
    """When requests (first turns of sessions) come."""
    lengths: PairLaw
    """Prompt and output tokens; `Reuse` where requests share content, with what they share."""
    sessions: Sessions | None = None
    """How conversations go; None where requests are independent."""
    concurrency: int | None = None
    """Requests in flight at most; None: open loop."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Where it comes from: `state` and `span_s` of the workload, `tokenpath_version`; JSON types only."""
    errors: dict[str, Any] = field(default_factory=dict)
    """How far it is from what it was not fitted to, and from what was measured; JSON types only."""
    notes: tuple[str, ...] = ()
    """What the model does not hold."""

    def generate(self, num_requests: int, seed: int = 0) -> Workload:
        """A workload of so many requests (with sessions: of about so many, whole sessions)."""
        if num_requests < 0:
            raise UsageError(f"{num_requests} requests", where="workload", allowed="from 0 on")
        if self.sessions is not None:
            drawn = self._draw_sessions(num_requests, seed)
        elif isinstance(self.lengths, Reuse):
            process = AtOnce() if self.concurrency else self.arrivals
            plain = open_loop(process, self.lengths, num_requests=num_requests, seed=seed)
            drawn = of_columns(
                "",
                "estimated",
                plain.arrival_ns,
                lengths.Pairs(plain.prompt_tokens, plain.output_tokens),
                self.lengths.draw_content(seed, num_requests),
                concurrency=self.concurrency,
            )
        elif self.concurrency is not None:
            drawn = closed_loop_of(self.concurrency, num_requests, self.lengths, seed=seed)
        else:
            drawn = open_loop(self.arrivals, self.lengths, num_requests=num_requests, seed=seed)
        name = f"{drawn.num_requests:,} requests like {self.name}"
        return dataclasses.replace(drawn, name=name, state="estimated")

    def _draw_sessions(self, num_requests: int, seed: int) -> Workload:
        if self.sessions is None:
            raise UsageError("the model has no sessions", where="workload model")
        turns = lengths.law_of(self.sessions.turns).at((np.arange(256) + 0.5) / 256)
        num_sessions = max(1, round(num_requests / float(turns.mean()))) if num_requests else 0
        return sessions(
            self.arrivals, num_sessions, self.sessions, concurrency=self.concurrency, seed=seed
        )

    def to_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "num_requests": self.num_requests,
            "arrivals": encode(self.arrivals),
            "lengths": encode(self.lengths),
            "sessions": encode(self.sessions),
            "concurrency": self.concurrency,
            "provenance": self.provenance,
            "errors": self.errors,
            "notes": list(self.notes),
        }


def from_json(text: str | bytes, where: str = "workload model") -> WorkloadModel:
    """A model of `to_json`. DamagedInput for anything else."""
    try:
        if len(text) > MAX_MODEL_BYTES:
            raise ValueError(f"more than {MAX_MODEL_BYTES >> 20} MiB")
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("no workload model")
        if content.get("version") != VERSION:
            raise ValueError(f"version {content.get('version')!r}, not {VERSION}")
        return WorkloadModel(
            name=str(content["name"]),
            num_requests=_decode(content["num_requests"], int),
            arrivals=_decode(content["arrivals"], ArrivalProcess),
            lengths=_decode(content["lengths"], PairLaw),
            sessions=_decode(content["sessions"], Sessions | None),
            concurrency=_decode(content["concurrency"], int | None),
            provenance=dict(content["provenance"]),
            errors=dict(content["errors"]),
            notes=tuple(str(note) for note in content["notes"]),
        )
    except KeyError as error:
        raise DamagedInput(f"{error} is missing", where=where) from None
    except (ValueError, TypeError, RecursionError, UsageError) as error:
        raise DamagedInput(
            str(error), where=where, allowed=f"JSON of `tokenpath workload fit`, version {VERSION}"
        ) from None


def encode(value: object) -> Any:
    """A process or law as JSON types, with its `kind`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = {
            entry.name: encode(getattr(value, entry.name)) for entry in dataclasses.fields(value)
        }
        return {"kind": type(value).__name__, **named}
    if isinstance(value, tuple | list):
        return [encode(entry) for entry in value]
    return value


def _decode(value: Any, wanted: Any) -> Any:
    """A value as a type hint asks for. ValueError for any other."""
    origin = typing.get_origin(wanted)
    if origin in (types.UnionType, typing.Union):
        return _decode_any(value, typing.get_args(wanted))
    if origin is tuple:
        return _decode_tuple(value, typing.get_args(wanted))
    if wanted is type(None) and value is None:
        return None
    if wanted is float and type(value) in (int, float):
        return float(value)
    if wanted in (int, str, bool) and type(value) is wanted:
        return value
    if isinstance(value, dict) and isinstance(wanted, type):
        kind = _KINDS.get(str(value.get("kind")))
        if kind is None or not _fits(kind, wanted):
            raise ValueError(f"{value.get('kind')!r} where {wanted.__name__} is needed")
        hints = typing.get_type_hints(kind)
        names = [entry.name for entry in dataclasses.fields(kind)]
        unknown = value.keys() - {*names, "kind"}
        if unknown:
            raise ValueError(f"{kind.__name__} has no {min(unknown)!r}")
        return kind(**{name: _decode(value[name], hints[name]) for name in names if name in value})
    raise ValueError(f"{str(value)[:60]!r} where {getattr(wanted, '__name__', wanted)} is needed")


def _decode_any(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        try:
            return _decode(value, choice)
        except ValueError as error:
            last = error
    raise last


def _decode_tuple(value: Any, inner: tuple[Any, ...]) -> Any:
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:60]!r} where a list is needed")
    if len(inner) == 2 and inner[1] is Ellipsis:
        return tuple(_decode(entry, inner[0]) for entry in value)
    if len(inner) != len(value):
        raise ValueError(f"{len(value)} entries instead of {len(inner)}")
    return tuple(_decode(entry, hint) for entry, hint in zip(value, inner, strict=True))


def _fits(kind: type, wanted: type) -> bool:
    methods = {
        ArrivalProcess: "times_s",
        PairLaw: "draw",
        lengths.LengthLaw: "at",
    }
    return hasattr(kind, methods[wanted]) if wanted in methods else kind is wanted
