"""What happens to a step besides its work: pauses, waits, copies, allocations, and the second thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tokenpath.lab.kernels import names
from tokenpath.lab.kernels.catalogue import Kernels
from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine.script import DeviceLabel, Label, Labels, Script, Template, Work
from tokenpath.lab.programs.frames import Engine
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.setup import Setup

PAGEABLE_SHARE = 0.22
"""What a copy from pageable memory reaches of a pinned one: it is staged through the driver's buffer."""
SIDE_STREAM = 3
"""Stream that nothing waits for."""


@dataclass(frozen=True)
class Flags:
    """Incidents of one step of one rank."""

    collect_ns: int = 0
    """Garbage collection."""
    compile_ns: int = 0
    """Compilation in the steady state."""
    warm_ns: int = 0
    """Extra work of a first step."""
    syncs: int = 0
    """Synchronising calls."""
    retries: int = 0
    """Blocks that the allocator gives back to the driver and asks for again."""
    side: bool = False
    """A decoy on the side stream."""
    copies: bool = False
    """A decoy of large copies that nothing waits for."""


def of_step(setup: Setup, knobs: Knobs, rank: int, number: int, step_ns: float) -> Flags:
    """The incidents of a step."""
    luck = np.random.Generator(np.random.PCG64([setup.seed, 17, rank, number]))
    # Young generations are collected all the time: tens to hundreds of microseconds.
    young = int(luck.uniform(40_000, 250_000)) // 10_000 * 10_000 if luck.random() < 0.12 else 0
    collect = young
    if knobs.gc_every and rank == knobs.gc_rank and number % knobs.gc_every == knobs.gc_every - 1:
        collect = int(knobs.gc_ms * 1e6)
    elif "gc-hidden" in knobs.decoys and number % 3 == 1:
        collect = int(0.25 * step_ns)
    every = knobs.compile_every
    compiles = bool(every) and number % every == every - 1
    warm = 0
    if knobs.warm_up and number < 2:
        warm = int(knobs.warm_up * step_ns * (0.75 if number == 0 else 0.25))
    retries = knobs.retries
    if knobs.retry_every > 1:
        retries = int(number % knobs.retry_every == knobs.retry_every - 1)
    if Memory(setup, knobs, rank).must_flush(number):
        retries += 8
    return Flags(
        collect_ns=collect,
        compile_ns=int(knobs.compile_ms * 1e6) if compiles else 0,
        warm_ns=warm,
        syncs=knobs.syncs if knobs.syncs >= 0 else int(number % -knobs.syncs == 0),
        retries=retries,
        side="side-stream" in knobs.decoys,
        copies="hidden-copy" in knobs.decoys,
    )


def idle_cuts(setup: Setup, knobs: Knobs, step_ns: float) -> Mapping[int, float]:
    """Before which steps no request was there, and for how long in ns."""
    if knobs.idle_share <= 0.0:
        return {}
    luck = np.random.Generator(np.random.PCG64([setup.seed, 19]))
    count = max(1, min(setup.steps // 4, 6))
    places = luck.choice(np.arange(2, setup.steps - 1), count, replace=False)
    total = knobs.idle_share / (1 - knobs.idle_share) * setup.steps * step_ns
    parts = luck.dirichlet(np.full(count, 4.0)) * total
    return {int(place): float(part) for place, part in zip(places, parts, strict=True)}


# -- parts of a step ------------------------------------------------------------------------------


def collect(script: Script, setup: Setup, ns: int, frame: str) -> None:
    """Garbage collection: a frame that holds the interpreter lock."""
    before, script.host_factor = script.host_factor, 1.0
    with script.extra(), script.frame("Python GC" if setup.seed % 3 else frame):
        script.spend(ns, 0.05)
    script.host_factor = before


def compile_again(script: Script, ns: int) -> None:
    """The compiler runs for a shape it has not seen."""
    before, script.host_factor = script.host_factor, 1.0
    with (
        script.extra(),
        script.frame("torch/_dynamo/convert_frame.py(1433): __call__"),
        script.op("_compile.compile_inner (dynamo_timed)"),
    ):
        script.spend(0.2 * ns, 0.05)
        with (
            script.frame("torch/_inductor/compile_fx.py(1731): compile_fx"),
            script.op("compile_fx_inner (dynamo_timed)"),
        ):
            script.spend(0.65 * ns, 0.05)
            with script.frame("torch/_inductor/codecache.py(3011): triton"):
                script.spend(0.15 * ns, 0.05)
                script.call("cuModuleLoadData", 180_000, category="cuda_driver")
    script.host_factor = before


def warm_up(script: Script, kernels: Kernels, ns: int) -> None:
    """The first steps compile, try configurations of kernels and ask the driver for memory."""
    before, script.host_factor = script.host_factor, 1.0
    with script.extra():
        with (
            script.frame(
                "torch/_inductor/runtime/triton_heuristics.py(912): autotune_to_one_config"
            ),
            script.frame("triton/testing.py(96): do_bench"),
        ):
            for _ in range(12):
                script.spend(0.02 * ns, 0.1)
                work = kernels.fixed("triton_poi_fused_mul_silu_1", "tuning", 9_000, 64)
                script.launch(work, call="cuLaunchKernel", category="cuda_driver")
                script.sync_device()
        with script.frame("torch/_inductor/compile_fx.py(1731): compile_fx"):
            script.spend(0.5 * ns, 0.05)
            script.call("cuModuleLoadData", 220_000, category="cuda_driver")
        for _ in range(6):
            with script.op("aten::empty"):
                script.call("cudaMalloc", 0.04 * ns, 0.2)
    script.host_factor = before


def synchronise(script: Script) -> None:
    """A value of the device is asked for on the host."""
    label = '"Input Dims": [[1]]'
    with script.op("aten::item", label, 900), script.op("aten::_local_scalar_dense", label, 1_200):
        script.release()
        script.launch(SCALAR, call="cudaMemcpyAsync", ns=4_000)
        script.sync_stream(0)
        script.acquire()


SCALAR = Work(
    DeviceLabel(
        "gpu_memcpy",
        "Memcpy DtoH (Device -> Pageable)",
        '"bytes": 4, "memory bandwidth (GB/s)": 0.002841',
    ),
    1_400.0,
    "copy",
    at.COPY,
)


def pageable_copy(script: Script, setup: Setup, kernels: Kernels, num_bytes: int) -> None:
    """Inputs from pageable memory: the call returns when the bytes are there."""
    rate = setup.gpu.pcie_bytes_per_s * PAGEABLE_SHARE
    dims = f'"Input Dims": [[{num_bytes // 4}]]'
    with script.extra(), script.op("aten::to", dims, 900), script.op("aten::_to_copy", dims):
        script.call("cudaStreamIsCapturing", 450)
        with script.op("aten::copy_", dims):
            work = kernels.copy("HtoD (Pageable -> Device)", num_bytes, rate)
            script.release()
            script.launch(work, call="cudaMemcpyAsync", ns=6_000, blocking=True)
            script.sync_stream(0)
            script.acquire()


def allocate_again(script: Script, times: int) -> None:
    """The allocator gives blocks back to the driver, which waits for the device, and asks for others."""
    with script.extra():
        for _ in range(times):
            with script.op("aten::empty", '"Input Dims": [[], [], [], [], [], []]'):
                script.sync_device("cudaFree", 180_000)
                script.call("cudaMalloc", 320_000, 0.3)


def side_kernel(script: Script, kernels: Kernels, step_ns: float) -> None:
    """A long kernel that nothing waits for."""
    with script.extra(), script.op("aten::mul", '"Input Dims": [[8192, 65536], [8192, 65536]]'):
        work = kernels.fixed(names.binary("MulFunctor<float>"), "side", 0.3 * step_ns, 524_288)
        script.launch(work, SIDE_STREAM)


def side_copy(script: Script, setup: Setup, kernels: Kernels, step_ns: float) -> None:
    """A large copy that nothing waits for."""
    rate = setup.gpu.pcie_bytes_per_s
    num_bytes = int(0.6 * step_ns / 1e9 * rate)
    with script.extra(), script.op("aten::copy_", f'"Input Dims": [[{num_bytes // 2}]]'):
        work = kernels.copy("DtoH (Device -> Pinned)", num_bytes, rate)
        script.launch(work, SIDE_STREAM, call="cudaMemcpyAsync", ns=5_000)


def sample_on_host(
    script: Script, setup: Setup, knobs: Knobs, kernels: Kernels, batch: int
) -> None:
    """Logits go to the host, are sampled there, and the tokens come back."""
    vocab = setup.model.vocab
    # Only the requests that ask for it: some, or all.
    batch = max(1, min(batch, round(batch * knobs.sampling_ms / 8.0)))
    num_bytes = 4 * batch * vocab
    dims = f'"Input Dims": [[{batch}, {vocab}]]'
    rate = setup.gpu.pcie_bytes_per_s * 0.35
    with script.extra():
        with (
            script.op("aten::to", dims),
            script.op("aten::_to_copy", dims),
            script.op("aten::copy_", dims),
        ):
            script.release()
            work = kernels.copy("DtoH (Device -> Pageable)", num_bytes, rate)
            script.launch(work, call="cudaMemcpyAsync", ns=6_000, blocking=True)
            script.sync_stream(0)
            script.acquire()
        before, script.host_factor = script.host_factor, 1.0
        for op, share in (
            ("aten::div_", 0.1),
            ("aten::softmax", 0.25),
            ("aten::sort", 0.45),
            ("aten::cumsum", 0.12),
            ("aten::multinomial", 0.08),
        ):
            with script.op(op, dims):
                script.spend(share * knobs.sampling_ms * 1e6, 0.08)
        script.host_factor = before
        with script.op("aten::to"), script.op("aten::copy_", f'"Input Dims": [[{batch}, 1]]'):
            work = kernels.copy("HtoD (Pageable -> Device)", 8 * batch, rate)
            script.launch(work, call="cudaMemcpyAsync", ns=5_000, blocking=True)


def wait_for_requests(script: Script, frames: Engine, ns: float) -> None:
    """No request is there: the loop waits for one."""
    with script.extra(), script.frame(frames.idle[0]):
        script.release()
        script.sync_device_quietly()
        if len(frames.idle) > 2:
            with script.frame(frames.idle[1]), script.frame(frames.idle[2]):
                script.pause(ns)
        else:
            with script.frame(frames.idle[-1]):
                script.pause(ns)
        script.acquire()


def background(
    labels: Labels, frames: Engine, knobs: Knobs, step_ns: float
) -> tuple[Template, Template]:
    """What the second thread does during a step: quiet, and with the lock as the knobs say."""
    quiet = Script(labels)
    quiet.pause(0.45 * step_ns)
    quiet.acquire()
    with quiet.frame(frames.background[0]):
        quiet.spend(12_000, 0.5)
        with quiet.frame(frames.background[1]):
            quiet.spend(18_000, 0.5)
    quiet.release()
    if "busy-thread" in knobs.decoys:
        # Native code that gave the lock away: always on, in nobody's way.
        with (
            quiet.frame(frames.background[0]),
            quiet.frame("<built-in method compress of Compressor object>"),
        ):
            quiet.spend(0.4 * step_ns, 0.1)
    else:
        quiet.pause(0.4 * step_ns)
    loud = Script(labels)
    hold = knobs.lock_hold * step_ns
    share = min(knobs.lock_share, 0.97)
    count = max(1, round(share * step_ns / max(hold, 1.0)))
    hold = share * step_ns / count
    rest = (1 - share) * 0.9 * step_ns / count
    # More than the steps need: the thread is cut off when they are done.
    for _ in range(8 * count):
        loud.pause(rest)
        loud.acquire()
        with loud.frame(frames.background[0]), loud.frame(frames.background[1]):
            loud.spend(hold, 0.2)
        loud.release()
    return quiet.template(), loud.template()


@dataclass(frozen=True)
class Memory:
    """The caching allocator of one rank, as far as its events show it."""

    setup: Setup
    """The scenario."""
    knobs: Knobs
    """The faults."""
    rank: int
    """The rank."""

    @property
    def limit(self) -> int:
        """Bytes that can be reserved."""
        return int(self.setup.gpu.memory_bytes * 0.92)

    @property
    def at_start(self) -> int:
        """Bytes that are reserved in the first step."""
        if self.knobs.growth_bytes:
            return self.limit - 24 * (512 << 20)
        return int(self.setup.gpu.memory_bytes * 0.86)

    def reserved(self, number: int) -> int:
        """Bytes that are reserved in a step."""
        grown = self.at_start + number * self.knobs.growth_bytes
        return min(self.limit, grown) // (2 << 20) * (2 << 20)

    def must_flush(self, number: int) -> bool:
        """Whether the memory of this step is not there without giving back what is cached."""
        growth = self.knobs.growth_bytes
        return bool(growth) and self.at_start + number * growth > self.limit

    def names(self, labels: Labels, number: int) -> dict[str, int]:
        """Labels of the allocator's events of a step."""
        if not self.setup.with_memory:
            return {}
        reserved = self.reserved(number)
        allocated = int(reserved * 0.93)
        if self.knobs.growth_bytes:
            allocated = min(reserved, int(self.at_start * 0.93) + number * self.knobs.growth_bytes)
        size = 16 << 20
        address = 0x7F2A_0000_0000 + (number % 7) * size
        found = {}
        for slot, change in (("allocated", size), ("freed", -size)):
            now = allocated + max(0, change)
            args = (
                f'"Total Reserved": {reserved}, "Total Allocated": {now}, "Bytes": {change}, '
                f'"Addr": {address}, "Device Id": {self.rank}, "Device Type": 1'
            )
            found[slot] = labels.of_host(Label("cpu_instant_event", "[memory]", args))
        return found
