"""Faults of communication and hardware."""

from __future__ import annotations

import numpy as np

from tokenpath.lab.device.fault import DENSE, SERVING, TRAINING, Fault, Needs, Place
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup


def _straggler(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.late_rank, knobs.late_ms = int(rng.integers(setup.ranks)), size
    return {"rank": knobs.late_rank}


def _slow_device(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.slow_rank, knobs.slow_rank_factor = int(rng.integers(setup.ranks)), size
    return {"rank": knobs.slow_rank}


def _imbalance(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.full_rank = int(rng.integers(setup.ranks))
    knobs.full_factor = 1.0 + (size - 1.0) * min(1.0, (setup.ranks - 1) / 3)
    return {"rank": knobs.full_rank}


def _link(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.link = size
    return {}


def _messages(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.messages = int(size)
    return {}


def _late_reduce(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.late_reduce = size
    return {}


def _contention(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.contention = size
    return {}


def _throttle(knobs: Knobs, _setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.throttle, knobs.throttle_at = size, float(rng.uniform(0.3, 0.6))
    return {}


def _other(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.other_share = size
    return {}


def _pcie(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.host_link = size
    return {}


_ANY = (*SERVING, *TRAINING)
FAULTS = {
    "comm-straggler": Fault((0.2, 2.0, 8.0, 25.0), _straggler, Needs(SERVING, min_ranks=2)),
    "comm-slow-device": Fault((1.005, 1.1, 1.3, 1.8), _slow_device, Needs(_ANY, min_ranks=2)),
    "comm-imbalance": Fault((1.02, 1.4, 2.0, 3.0), _imbalance, Needs(("vllm-moe",), min_ranks=2)),
    "comm-slow-link": Fault((1.05, 2.5, 6.0, 15.0), _link, Needs(SERVING, min_ranks=4)),
    "comm-small-messages": Fault((2, 4, 8, 12), _messages, Needs(SERVING, min_ranks=2)),
    "comm-not-overlapped": Fault((0.02, 0.3, 0.6, 1.0), _late_reduce, Needs(("ddp",), min_ranks=2)),
    "comm-contention": Fault((1.02, 1.3, 1.8, 2.5), _contention, Needs(TRAINING, min_ranks=2)),
    "hw-throttle": Fault((1.01, 1.12, 1.35, 2.0), _throttle, Needs(_ANY)),
    "hw-other-process": Fault((0.005, 0.1, 0.25, 0.5), _other, Needs(DENSE, max_ranks=1)),
    "hw-slow-pcie": Fault((1.1, 4.0, 10.0, 30.0), _pcie, Needs(SERVING, inputs=True)),
}
