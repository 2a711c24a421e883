"""Faults of hosts, memory and benchmarks."""

from __future__ import annotations

import numpy as np

from tokenpath.lab.device.fault import DENSE, SERVING, TRAINING, Fault, Needs, Place
from tokenpath.lab.programs.frames import ENGINES
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup


def _eager(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.eager = size
    return {}


def _gc(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.gc_ms, knobs.gc_every = size, int(rng.integers(3, 6))
    knobs.gc_rank = int(rng.integers(setup.ranks))
    return {"thread": 0, "of_rank": knobs.gc_rank}


def _lock(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.lock_share, knobs.lock_hold = size, float(rng.uniform(0.3, 0.7))
    knobs.lock_rank = int(rng.integers(setup.ranks))
    return {"thread": 1, "of_rank": knobs.lock_rank}


def _scheduler(knobs: Knobs, setup: Setup, size: float, rng: np.random.Generator) -> Place:
    engine = ENGINES[setup.program]
    name = str(rng.choice([name for name, _ in engine.scheduling]))
    knobs.slow_function, knobs.slow_function_ms = name, size
    return {"function": name.rsplit("/", 1)[-1]}


def _sync(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.syncs = int(size) if size >= 1 else -round(1 / size)
    return {}


def _sampling(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.sampling_ms = size
    return {}


def _pageable(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.pageable_bytes = int(size)
    return {}


def _allocator(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.retries = int(size) if size >= 1 else 0
    knobs.retry_every = round(1 / size) if size < 1 else 1
    return {}


def _recompile(knobs: Knobs, _setup: Setup, size: float, rng: np.random.Generator) -> Place:
    knobs.compile_ms, knobs.compile_every = size, int(rng.integers(5, 9))
    return {}


def _loader(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.loader_ms = size
    return {}


def _off_cpu(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.off_cpu_share = size
    return {}


def _growth(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.growth_bytes = int(size)
    return {}


def _warm_up(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.warm_up = size
    return {}


def _no_load(knobs: Knobs, _setup: Setup, size: float, _rng: np.random.Generator) -> Place:
    knobs.idle_share = size
    return {}


_MIB = float(1 << 20)
FAULTS = {
    "host-eager": Fault(
        (0.6, 1.8, 3.0, 6.0), _eager, Needs(DENSE, max_ranks=2, short=True, light=True)
    ),
    "host-gc": Fault((1.0, 40.0, 100.0, 300.0), _gc, Needs(SERVING, stack=True)),
    "host-gil": Fault(
        (0.05, 0.75, 0.85, 0.95), _lock, Needs(DENSE, stack=True, short=True, light=True)
    ),
    "host-slow-scheduler": Fault(
        (1.0, 20.0, 60.0, 150.0), _scheduler, Needs(DENSE, max_ranks=1, stack=True)
    ),
    "host-sync": Fault((0.1, 1, 2, 4), _sync, Needs(DENSE, short=True, light=True)),
    "host-sampling": Fault((0.1, 2.0, 8.0, 30.0), _sampling, Needs(SERVING)),
    "host-pageable-copy": Fault(
        (64 * 1024, 16 * _MIB, 64 * _MIB, 256 * _MIB), _pageable, Needs(SERVING)
    ),
    "host-allocator": Fault((0.1, 2, 6, 20), _allocator, Needs(SERVING)),
    "host-recompile": Fault((5.0, 150.0, 500.0, 2_000.0), _recompile, Needs(SERVING)),
    "host-data-loader": Fault((5.0, 150.0, 400.0, 1_000.0), _loader, Needs(TRAINING)),
    "host-oversubscribed": Fault(
        (0.03, 0.6, 0.75, 0.88), _off_cpu, Needs(DENSE, short=True, light=True)
    ),
    "memory-growth": Fault(
        (64 * _MIB, 640 * _MIB, 1024 * _MIB, 2048 * _MIB), _growth, Needs(SERVING, memory=True)
    ),
    "bench-warm-up": Fault((0.2, 5.0, 15.0, 60.0), _warm_up, Needs(SERVING)),
    "bench-no-load": Fault((0.005, 0.1, 0.3, 0.7), _no_load, Needs(SERVING, stack=True)),
}
