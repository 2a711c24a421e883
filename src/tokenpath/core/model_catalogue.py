"""Shapes of the models that people serve, by name; `model_catalogue.toml` holds the facts.

`find_model` takes what a person or a launch command writes: a repository of the Hugging Face hub, a short
name (`llama-3.1-8b`), a path to a config.json or its folder. The file is read on the first lookup.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from tokenpath.core.errors import InputError
from tokenpath.core.llm import ModelShape
from tokenpath.core.llm_config import read_model_shape
from tokenpath.core.quantisation import Scheme, find_scheme


@dataclass(frozen=True, slots=True)
class Model:
    """A model as it is served."""

    name: str
    """Repository on the hub, or the path that was given."""
    shape: ModelShape
    """Its sizes."""
    scheme: Scheme
    """How its weights are stored."""
    sparse_topk: int | None = None
    """Tokens that sparse attention reads at most; None: attention is dense."""
    published_params: float | None = None
    """Parameters as the publisher prints them; None: not in the catalogue."""

    def quantised(self, scheme: str | None) -> Model:
        """The same layers in another scheme; None: as they are."""
        return self if scheme is None else replace(self, scheme=find_scheme(scheme))

    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        parts = self.shape.parameters()
        head = parts["embedding"] + parts["lm_head"]
        experts = parts["experts"]
        rest = sum(parts.values()) - head - experts
        scheme = self.scheme
        bits = (
            head * scheme.head.bits_per_param
            + experts * scheme.experts.bits_per_param
            + rest * scheme.linear.bits_per_param
        )
        return bits / 8


def find_model(name: str) -> Model:
    """The model of a name or a config.json; InputError with the nearest known names."""
    found = load_models().get(name.lower())
    if found is not None:
        return found
    path = Path(name)
    if path.exists():
        shape = read_model_shape(path)
        scheme = "fp32" if shape.dtype in ("float32", "fp32") else "bf16"
        return Model(str(path), shape, find_scheme(scheme))
    near = get_close_matches(name.lower(), list(load_models()), n=3, cutoff=0.5)
    raise InputError(
        f"unknown model {name!r}",
        where="core/model_catalogue.toml",
        allowed="a name of the catalogue, or a path to a config.json or its folder",
        next_step=f"nearest names: {', '.join(near)}" if near else "give the model's config.json",
    )


@cache
def load_models() -> Mapping[str, Model]:
    """Every model, by lower-case name; a model with several names is there under each."""
    data = tomllib.loads(files(__package__).joinpath("model_catalogue.toml").read_text("utf-8"))
    models = {}
    for name, entry in data["model"].items():
        model = Model(
            name,
            read_model_shape({"torch_dtype": "bfloat16", **entry["config"]}),
            find_scheme(entry.get("quantisation", "bf16")),
            entry.get("sparse_topk"),
            entry["params_b"] * 1e9,
        )
        for key in (name.lower(), *entry.get("names", ())):
            if key in models:
                raise ValueError(f"model_catalogue.toml: two models are called {key}")
            models[key] = model
    return MappingProxyType(models)
