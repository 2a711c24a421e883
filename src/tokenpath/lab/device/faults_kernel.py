"""Faults of kernels."""

from __future__ import annotations

import numpy as np

from tokenpath.lab.device.fault import DENSE, EAGER, SERVING, Fault, Needs, Place
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup


def _slow(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    role = str(rng.choice(["attention_decode", "norm", "activation", "down"]))
    if setup.model.experts:
        role = str(rng.choice(["attention_decode", "experts_up"]))
    knobs.factors[role] = size
    return {"role": role}


def _tail(knobs: Knobs, _setup: Setup, size: float, rng: np.random.Generator) -> Place:
    role = str(rng.choice(["gate_up", "down", "qkv"]))
    # (w + 1) / (w + 3/132) is the factor that w full waves and three more blocks cost.
    knobs.tail_waves[role] = max(1, round(1.0 / (size - 1.0)))
    return {"role": role}


def _occupancy(knobs: Knobs, _setup: Setup, size: float, rng: np.random.Generator) -> Place:
    role = str(rng.choice(["norm", "activation", "cache"]))
    knobs.occupancy[role] = size
    return {"role": role}


def _single(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    roles = ["qkv", "o_proj", "gate_up", "down"]
    for role in roles:
        knobs.single[role] = size
    return {"role": "qkv"}


def _chain(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.chain = int(size)
    return {}


def _layout(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.layout_copies = int(size)
    return {}


def _underfilled(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.unsplit = size
    return {"role": "attention_decode"}


def _imbalance(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.longest = size
    return {"role": "attention_decode"}


def _padding(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.pad_to = size
    return {}


FAULTS = {
    "kernel-slow": Fault((1.03, 1.5, 3.0, 8.0), _slow, Needs((*SERVING, *EAGER))),
    "kernel-tail-wave": Fault((1.04, 1.25, 1.5, 1.95), _tail, Needs(DENSE, short=True)),
    "kernel-low-occupancy": Fault((1.1, 2.0, 5.0, 12.0), _occupancy, Needs(DENSE)),
    "kernel-wrong-precision": Fault(
        (0.02, 0.06, 0.25, 1.0), _single, Needs((*DENSE, *EAGER), short=True)
    ),
    "kernel-unfused": Fault((2, 4, 8, 16), _chain, Needs((*DENSE, *EAGER))),
    "kernel-layout-copies": Fault((1, 4, 8, 16), _layout, Needs((*SERVING, *EAGER))),
    "attention-underfilled": Fault(
        (1.05, 1.6, 3.0, 6.0), _underfilled, Needs(DENSE, max_ranks=2, small_batch=True)
    ),
    "attention-imbalance": Fault((1.04, 1.4, 2.5, 5.0), _imbalance, Needs(DENSE, split=False)),
    "scheduler-graph-padding": Fault((1.1, 1.5, 2.5, 4.0), _padding, Needs(DENSE, short=True)),
}
