"""Steps of serving engines: vLLM's and SGLang's loop with asynchronous scheduling.

A step prepares inputs, launches the forward pass (a graph in pure decode, kernel by kernel where a prompt is
in the batch), samples, and sends the tokens to the host on a stream of their own. Then the host handles the
output of the step before: the device always has the next step in its queue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tokenpath.lab.kernels import names
from tokenpath.lab.kernels.catalogue import Kernels
from tokenpath.lab.machine.plan import Step
from tokenpath.lab.machine.script import ANNOTATION, Label, Labels, Script, Template
from tokenpath.lab.programs import frames, incidents
from tokenpath.lab.programs.comm import Collectives
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.layers import Item, Shapes, forward
from tokenpath.lab.programs.plan import Program, Thread, device_ns, host_ns
from tokenpath.lab.programs.setup import Setup

BETWEEN_STEPS = 0.01
"""Share of a step that a well-kept `generate` loop spends between two passes (some 700 us at scale 1)."""
OUT_STREAM = 2
"""Stream of the copies to the host."""
CAPTURED = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 512)
"""Batches for which graphs were captured."""


class Serving:
    """Writes the templates of one scenario; `plan` gives the program."""

    def __init__(self, setup: Setup, knobs: Knobs) -> None:
        self.setup = setup
        self.knobs = knobs
        self.labels = Labels()
        self.frames = frames.ENGINES[setup.program]
        self._templates: dict[tuple[object, ...], tuple[Template, tuple[float, ...]]] = {}
        self._rng = np.random.Generator(np.random.PCG64([setup.seed, 11]))
        self._host_scale = 1.0
        self._late_ns = 0.0

    def plan(self) -> Program:
        """All steps of all ranks."""
        setup, knobs = self.setup, self.knobs
        shapes = self._shapes()
        # The host of a healthy service needs half of the device's time or less.
        decode, _ = self._template(shapes[-1], incidents.Flags(), late=False, healthy=True)
        wanted = float(self._rng.uniform(0.35, 0.6)) * device_ns(decode)
        self._host_scale = min(setup.host_speed, wanted / host_ns(decode))
        if setup.program == "hf":
            # Nothing runs ahead of the look at the tokens: what the host does there must be short.
            self._host_scale = min(setup.host_speed, BETWEEN_STEPS * device_ns(decode) / 700_000)
        self._templates.clear()
        decode, _ = self._template(shapes[-1], incidents.Flags(), late=False, healthy=True)
        slack = max(0.0, device_ns(decode) - host_ns(decode))
        self._templates.clear()
        if knobs.late_rank is not None:
            # Less than a millisecond stays within what the launch queue hides.
            hidden = slack if knobs.late_ms >= 1.0 else 0.0
            self._late_ns = hidden + knobs.late_ms * 1e6
        background = incidents.background(self.labels, self.frames, knobs, device_ns(decode))
        program = Program(
            self.labels,
            (
                Thread(self.frames.process, self.frames.outer(setup.ranks)),
                Thread(self.frames.process, self.frames.background_outer, is_daemon=True),
            ),
            process=self.frames.process,
            header={}
            if setup.program in ("sglang", "hf")
            else {"vllm_version_tuple": ["0", "11", "0"]},
        )
        step_ns = self._step_ns = device_ns(decode)
        cuts = incidents.idle_cuts(setup, knobs, step_ns)
        for rank in range(setup.ranks):
            own: list[Step] = []
            memory = incidents.Memory(setup, knobs, rank)
            for number in range(setup.steps):
                flags = incidents.of_step(setup, knobs, rank, number, step_ns)
                idle = cuts.get(number, 0.0)
                template, transfers = self._template(
                    shapes[number], flags, rank == knobs.late_rank, idle=idle
                )
                quiet = background[1 if rank == knobs.lock_rank and knobs.lock_share else 0]
                own.append(
                    Step(
                        (template, quiet if number < setup.steps - 1 else None),
                        names=self._names(shapes[number], number)
                        | memory.names(self.labels, number),
                        context=shapes[number].context / shapes[-1].context,
                        roles=self._roles(rank, number),
                        transfers=transfers,
                    )
                )
            program.steps.append(own)
        return program.close()

    # -- what is computed -------------------------------------------------------------------------

    def _shapes(self) -> list[Shapes]:
        """The batch of each step: requests grow, end, and come."""
        setup = self.setup
        batch = setup.batch
        shapes = []
        for number in range(setup.steps):
            has_chunk = bool(setup.prefill_every) and number % setup.prefill_every == 2
            captured = min(size for size in CAPTURED if size >= batch)
            if self.knobs.pad_to > 1.0:
                wanted = batch * self.knobs.pad_to
                captured = min(CAPTURED, key=lambda size: abs(size - wanted))
            shapes.append(
                Shapes(
                    batch=batch if has_chunk else max(captured, batch),
                    context=setup.context + number,
                    real_batch=batch,
                    chunk=setup.chunk if has_chunk else 0,
                    longest=self.knobs.longest or 1.0 if 10 * number >= 3 * setup.steps else 1.0,
                )
            )
        # The last step is a decode step of the usual kind: it sizes the host's work.
        shapes[-1] = replace(shapes[-1], chunk=0, batch=max(shapes[0].batch, shapes[-1].real_batch))
        return shapes

    def _names(self, shapes: Shapes, number: int) -> dict[str, int]:
        """The annotation of the step, as the engine words it."""
        keys = int((shapes.real_batch - 1 + shapes.longest) * shapes.context)
        asked, chunk = shapes.real_batch, shapes.chunk
        if self.setup.program == "hf":
            text = f"ProfilerStep#{number + 5}"
        elif self.setup.program == "sglang":
            if chunk:
                text = f"step[MIXED bs={asked + 1} c=1 g={asked} c_sq={chunk} g_sq={asked}]"
            else:
                text = f"step[DECODE bs={asked} g_sq={asked} g_sk={keys}]"
        else:
            some = int(chunk > 0)
            text = (
                f"execute_{asked + chunk}_context_{some}(sq{chunk}sk{chunk}sqsq{chunk * chunk}"
                f"sqsk{chunk * chunk})_generation_{asked}(sq{asked}sk{keys}sqsq{asked}sqsk{keys})"
            )
            if self.setup.seed % 2:
                text = f"execute_context_{some}({chunk})_generation_{asked}({asked})"
        return {"step": self.labels.of_host(Label(ANNOTATION, text))}

    def _roles(self, rank: int, number: int) -> Mapping[str, float]:
        """Factors on this rank's kernels in this step: uneven experts, a slow device."""
        knobs, roles = self.knobs, {}
        if self.setup.model.experts:
            luck = np.random.Generator(np.random.PCG64([self.setup.seed, 13, rank, number]))
            uneven = float(luck.normal(1.0, 0.03))
            if rank == knobs.full_rank:
                uneven *= knobs.full_factor
            elif knobs.full_rank is not None:
                ranks = self.setup.ranks
                uneven *= max(0.2, (ranks - knobs.full_factor) / (ranks - 1))
            roles["experts_up"] = roles["experts_down"] = uneven
        return roles

    # -- one step ---------------------------------------------------------------------------------

    def _template(
        self,
        shapes: Shapes,
        flags: incidents.Flags,
        late: bool,
        *,
        idle: float = 0.0,
        healthy: bool = False,
    ) -> tuple[Template, tuple[float, ...]]:
        what = (shapes.batch, shapes.chunk, shapes.real_batch, shapes.longest)
        key = (*what, flags, late, idle, healthy)
        if key not in self._templates:
            self._templates[key] = self._write(shapes, flags, late, idle, healthy)
        return self._templates[key]

    def _write(
        self, shapes: Shapes, flags: incidents.Flags, late: bool, idle: float, healthy: bool
    ) -> tuple[Template, tuple[float, ...]]:
        setup = self.setup
        knobs = Knobs() if healthy else self.knobs
        kernels = Kernels(
            setup.gpu.hardware,
            setup.shares,
            setup.gemm_style,
            factors=knobs.factors,
            tail_waves=knobs.tail_waves,
            occupancy=knobs.occupancy,
            single=knobs.single,
        )
        comm = Collectives(setup, kernels, knobs.link)
        reference = replace(shapes, context=setup.context + setup.steps - 1)
        graph = shapes.chunk == 0 and knobs.eager is None and setup.program != "hf"
        items = list(forward(setup, kernels, knobs, reference, comm, graph=graph))
        script = Script(self.labels)
        script.host_factor = self._host_scale
        script.acquire()
        if idle > 0.0:
            incidents.wait_for_requests(script, self.frames, idle)
        with script.frame(self.frames.step):
            if flags.warm_ns:
                incidents.warm_up(script, kernels, flags.warm_ns)
            if flags.syncs > 1:
                with script.extra():
                    for _ in range(flags.syncs - 1):
                        incidents.synchronise(script)
            self._schedule(script, knobs)
            if late:
                # This rank's host does everything as the others do, only slower.
                script.host_factor *= 1.0 + self._late_ns / max(1.0, self._host_guess)
            with script.frame(self.frames.execute), script.annotation("step", slot="step"):
                self._prepare(script, setup, knobs, kernels, shapes)
                self._incidents(script, kernels, knobs, flags)
                if graph:
                    self._replay(script, items, shapes)
                else:
                    self._launch_each(script, items, knobs)
                self._sample(script, setup, knobs, kernels, comm, shapes)
            self._output(script)
        template = script.template()
        if healthy:
            self._host_guess = host_ns(template)
        return template, tuple(comm.transfers)

    _host_guess = 1.0
    _step_ns = 1.0

    def _schedule(self, script: Script, knobs: Knobs) -> None:
        work = self.frames
        if not work.schedules(self.setup.ranks):
            with script.frame(work.dequeue):
                script.spend(90_000)
            return
        for name, ns in work.scheduling:
            with script.frame(name):
                script.spend(ns)
                if knobs.slow_function == name and knobs.slow_function_ms:
                    with script.extra():
                        before, script.host_factor = script.host_factor, 1.0
                        script.spend(knobs.slow_function_ms * 1e6, 0.08)
                        script.host_factor = before

    def _prepare(
        self, script: Script, setup: Setup, knobs: Knobs, kernels: Kernels, shapes: Shapes
    ) -> None:
        rate = setup.gpu.pcie_bytes_per_s / knobs.host_link
        with script.frame(self.frames.prepare):
            script.spend(210_000)
            for num_bytes in (4 * shapes.tokens, 8 * shapes.tokens, 64 * shapes.real_batch):
                with script.op(
                    "aten::copy_", f'"Input Dims": [[{shapes.tokens}], [{shapes.tokens}], []]'
                ):
                    work = kernels.copy("HtoD (Pinned -> Device)", num_bytes, rate)
                    script.release()
                    script.launch(work, call="cudaMemcpyAsync", ns=4_200)
                    script.acquire()
                script.spend(25_000)
            with script.op("aten::fill_"):
                script.launch(kernels.fixed(names.FILL, "fill", 1_450))
            script.spend(120_000)

    def _incidents(
        self, script: Script, kernels: Kernels, knobs: Knobs, flags: incidents.Flags
    ) -> None:
        """What comes between the inputs and the forward pass."""
        setup = self.setup
        if setup.with_memory:
            script.instant("allocated")
        if setup.input_bytes:
            dims = f'"Input Dims": [[{setup.input_bytes // 2}]]'
            with script.op("aten::copy_", dims):
                rate = setup.gpu.pcie_bytes_per_s / knobs.host_link
                work = kernels.copy("HtoD (Pinned -> Device)", setup.input_bytes, rate)
                script.launch(work, call="cudaMemcpyAsync", ns=4_800)
        if knobs.pageable_bytes:
            incidents.pageable_copy(script, setup, kernels, knobs.pageable_bytes)
        if flags.compile_ns:
            incidents.compile_again(script, flags.compile_ns)
        if flags.retries:
            incidents.allocate_again(script, flags.retries)
        with script.extra():
            if flags.syncs:
                incidents.synchronise(script)
        if flags.side:
            incidents.side_kernel(script, kernels, self._step_ns)
        if flags.copies:
            incidents.side_copy(script, setup, kernels, self._step_ns)
        if flags.collect_ns:
            incidents.collect(script, setup, flags.collect_ns, self.frames.collect)
        if setup.with_memory:
            script.instant("freed")

    def _replay(self, script: Script, items: list[Item], shapes: Shapes) -> None:
        with script.frame(self.frames.forward), script.frame(self.frames.replay):
            script.release()
            nodes = [(item.work, item.collective) for item in items]
            script.replay(shapes.batch, nodes, 14_000 + 420 * len(nodes))
            script.acquire()

    def _launch_each(self, script: Script, items: list[Item], knobs: Knobs) -> None:
        factor = knobs.eager or 1.0
        before = script.host_factor
        script.host_factor = self.setup.host_speed * factor
        script.launch_factor = self.setup.host_speed * factor
        with script.frame(self.frames.forward):
            for item in items:
                with script.op(item.op, item.dims, 3_800):
                    call, category = "cudaLaunchKernel", "cuda_runtime"
                    if item.op.startswith("triton"):
                        call, category = "cuLaunchKernel", "cuda_driver"
                    elif "nvjet" in item.work.label.name or "device_kernel" in item.work.label.name:
                        call = "cudaLaunchKernelExC"
                    script.launch(
                        item.work, call=call, category=category, collective=item.collective
                    )
                script.spend(2_600, 0.3)
        script.host_factor, script.launch_factor = before, 1.0

    def _sample(
        self,
        script: Script,
        setup: Setup,
        knobs: Knobs,
        kernels: Kernels,
        comm: Collectives,
        shapes: Shapes,
    ) -> None:
        model, batch = setup.model, max(1, shapes.real_batch + (1 if shapes.chunk else 0))
        tensor = setup.ranks if setup.program in ("vllm", "sglang") else 1
        vocab = model.vocab // tensor
        with script.frame(self.frames.logits):
            dims = f'"Input Dims": [[{batch}, {model.hidden}], [{model.hidden}, {vocab}]]'
            with script.op("aten::linear"), script.op("aten::mm", dims):
                script.launch(kernels.gemm(batch, vocab, model.hidden, "lm_head"))
            if tensor > 1:
                script.spend(20_000)
                payload = batch * model.vocab * 2.0
                described = comm.describe("all_gather", payload)
                with (
                    script.op("record_param_comms", described),
                    script.annotation("nccl:_all_gather_base"),
                ):
                    work, number = comm.add("all_gather", payload)
                    script.launch(work, call="cudaLaunchKernelExC", collective=number)
        with script.frame(self.frames.sample):
            script.spend(60_000)
            width = batch * model.vocab
            if knobs.sampling_ms:
                incidents.sample_on_host(script, setup, knobs, kernels, batch)
            on_device = (
                ("aten::_to_copy", kernels.pointwise(names.CAST, "sample_cast", width, width=3.0)),
                (
                    "aten::div_",
                    kernels.pointwise(
                        names.binary("DivFunctor<float>"), "sample", width, width=4.0
                    ),
                ),
                ("aten::softmax", kernels.pointwise(names.SOFTMAX, "sample", width, width=4.0)),
                ("aten::argmax", kernels.pointwise(names.ARGMAX, "sample", width, width=4.0)),
            )
            for op, work in on_device[: 1 if knobs.sampling_ms else None]:
                script.release()
                with script.op(op, f'"Input Dims": [[{batch}, {model.vocab}]]'):
                    script.launch(work)
                script.acquire()
                script.spend(9_000)
            script.record("sampled")
            script.wait("sampled", OUT_STREAM)
            with script.op("aten::copy_", f'"Input Dims": [[{batch}, 1], [{batch}, 1], []]'):
                rate = setup.gpu.pcie_bytes_per_s
                work = kernels.copy("DtoH (Device -> Pinned)", 8 * batch, rate)
                script.launch(work, OUT_STREAM, call="cudaMemcpyAsync", ns=4_400)
            script.record("copied", OUT_STREAM)

    def _output(self, script: Script) -> None:
        with script.frame(self.frames.output):
            script.spend(30_000)
            script.release()
            # generate() looks at the new tokens before it goes on; engines look one step later.
            script.sync_event("copied", before=int(self.setup.program != "hf"))
            script.acquire()
            script.spend(180_000)
        if self.frames.schedules(self.setup.ranks):
            for name, ns in self.frames.updating:
                with script.frame(name):
                    script.spend(ns)
