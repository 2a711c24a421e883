"""What faults and decoys turn. At the defaults a program is healthy."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenpath.lab.machine.plan import Conditions


@dataclass
class Knobs:
    """Faults as what really happens, not as what is seen."""

    factors: dict[str, float] = field(default_factory=dict)
    """Factor on the kernels of a role."""
    tail_waves: dict[str, int] = field(default_factory=dict)
    """Full waves before a nearly empty one, by role of a matrix product."""
    occupancy: dict[str, float] = field(default_factory=dict)
    """Factor on the kernels of a role that hold too many registers."""
    single: dict[str, float] = field(default_factory=dict)
    """Share of a role's products in FP32."""
    chain: int = 0
    """Pointwise kernels in place of one fused activation; 0: fused."""
    layout_copies: int = 0
    """Copies a layer to another layout and back."""
    unsplit: float | None = None
    """Decode attention without split keys: factor on its time."""
    longest: float | None = None
    """One long request comes during the run: its length over that of the others."""
    eager: float | None = None
    """Decode without graphs: factor on the cost of launching."""
    gc_ms: float = 0.0
    """Pause of garbage collection."""
    gc_every: int = 0
    """Steps between pauses; 0: none."""
    gc_rank: int = 0
    """Where."""
    lock_hold: float = 0.0
    """How long another thread holds the interpreter lock at a time, in steps: native code that keeps it."""
    lock_share: float = 0.0
    """Share of the time in which it wants it."""
    lock_rank: int = 0
    """Where."""
    slow_function: str | None = None
    """Function of the scheduler that takes long."""
    slow_function_ms: float = 0.0
    """For how long each step."""
    syncs: int = 0
    """Synchronising calls a step."""
    sampling_ms: float = 0.0
    """Sampling on the host each step."""
    pageable_bytes: int = 0
    """Inputs copied from pageable memory each step."""
    retries: int = 0
    """Frees and allocations by the driver each step."""
    retry_every: int = 1
    """Steps between two steps with them."""
    compile_ms: float = 0.0
    """A compilation in steady state."""
    compile_every: int = 0
    """Steps between compilations; 0: none."""
    loader_ms: float = 0.0
    """Wait for the next batch each step."""
    off_cpu_share: float = 0.0
    """Share of time in which launching threads have no core."""
    pad_to: float = 1.0
    """Captured over real batch."""
    late_rank: int | None = None
    """Rank whose host is late."""
    late_ms: float = 0.0
    """By how much each step."""
    slow_rank: int | None = None
    """Rank whose device is slow."""
    slow_rank_factor: float = 1.0
    """Factor on its kernels."""
    full_rank: int | None = None
    """Rank that holds more work."""
    full_factor: float = 1.0
    """Its work over the mean."""
    link: float = 1.0
    """Factor on the time of transfers."""
    messages: int = 1
    """Collectives in place of one."""
    late_reduce: float = 0.0
    """Share of the gradients reduced after the backward pass."""
    contention: float = 1.0
    """Factor on compute and communication that run side by side."""
    growth_bytes: int = 0
    """Memory that is not given back each step."""
    throttle: float = 1.0
    """Factor on kernels after the clock has dropped."""
    throttle_at: float = 0.4
    """When it drops, as a share of the run."""
    other_share: float = 0.0
    """Share of the device's time that another process takes."""
    host_link: float = 1.0
    """Factor on copies between host and device."""
    warm_up: float = 0.0
    """Extra time of the first steps, in steps."""
    idle_share: float = 0.0
    """Share of time without requests."""
    decoys: frozenset[str] = frozenset()
    """Loud but harmless things."""
    conditions: Conditions = field(default_factory=Conditions)
    """Filled by the scenario from the knobs above once the length of the run is known."""
