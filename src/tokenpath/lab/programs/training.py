"""Training steps of PyTorch: data parallel with buckets, and fully sharded.

The main thread fetches a batch, runs the forward pass and the optimizer; the backward pass runs on autograd's
thread. Gradients are reduced on a stream of their own as soon as a bucket of layers is done (DDP), or weights
are gathered one layer ahead and gradients scattered behind (FSDP).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tokenpath.lab.kernels import names
from tokenpath.lab.kernels.catalogue import Kernels
from tokenpath.lab.machine.plan import Step
from tokenpath.lab.machine.script import ANNOTATION, Label, Labels, Script, Template, Work
from tokenpath.lab.programs.comm import Collectives
from tokenpath.lab.programs.knobs import Knobs
from tokenpath.lab.programs.plan import Program, Thread
from tokenpath.lab.programs.setup import Setup

COMM_STREAM = 1
"""Stream of NCCL."""
BUCKET_LAYERS = 2
"""Layers whose gradients fill one bucket."""
START, DONE = 0, 1
"""Signals: the backward pass may start, and is done."""

Item = tuple[str, str, Work]


class Training:
    """Writes the templates of one scenario; `plan` gives the program."""

    def __init__(self, setup: Setup, knobs: Knobs) -> None:
        self.setup = setup
        self.knobs = knobs
        self.labels = Labels()
        self.tokens = setup.batch * setup.context
        self.kernels = Kernels(
            setup.gpu.hardware,
            setup.shares,
            setup.gemm_style,
            factors=knobs.factors,
            tail_waves=knobs.tail_waves,
            occupancy=knobs.occupancy,
            single=knobs.single,
        )

    def plan(self) -> Program:
        """All steps of all ranks: a template for the main thread, one for autograd's."""
        setup = self.setup
        comm = Collectives(setup, self.kernels, self.knobs.link)
        later = self._step(comm, waits=True)
        # A profiler's schedule starts recording once the first batch is there.
        first_comm = Collectives(setup, self.kernels, self.knobs.link)
        first = self._step(first_comm, waits=False) if self.knobs.loader_ms else later
        program = Program(
            self.labels,
            (
                Thread("pt_main_thread", ("train.py(1): <module>", "train.py(214): train")),
                Thread("pt_autograd_0"),
            ),
            process="python",
        )
        for rank in range(setup.ranks):
            luck = np.random.Generator(np.random.PCG64([setup.seed, 13, rank]))
            program.steps.append(
                [
                    Step(
                        later if number else first,
                        names=self._names(number),
                        roles=self._roles(luck),
                        transfers=tuple(
                            (comm if number or first is later else first_comm).transfers
                        ),
                    )
                    for number in range(setup.steps)
                ]
            )
        return program.close()

    def _names(self, number: int) -> Mapping[str, int]:
        return {"step": self.labels.of_host(Label(ANNOTATION, f"ProfilerStep#{number + 10}"))}

    def _roles(self, luck: np.random.Generator) -> Mapping[str, float]:
        """Parts of one make differ by a fraction of a per cent."""
        factor = float(luck.normal(1.0, 0.002))
        return {"attention_forward": factor, "attention_backward": factor}

    # -- one step ---------------------------------------------------------------------------------

    def _step(self, comm: Collectives, *, waits: bool) -> tuple[Template, Template]:
        setup = self.setup
        is_sharded = setup.program == "fsdp"
        main, back = Script(self.labels), Script(self.labels)
        # Both threads name the same events.
        back.events = main.events
        for script in (main, back):
            script.host_factor = script.launch_factor = setup.host_speed
        wrapper = "FullyShardedDataParallel" if is_sharded else "DistributedDataParallel"
        with main.annotation("ProfilerStep#0", slot="step"):
            self._fetch(main, waits)
            with (
                main.annotation(f"{wrapper}.forward"),
                main.frame("torch/nn/modules/module.py(1777): _call_impl"),
            ):
                self._forward(main, comm, is_sharded)
            with main.frame("torch/_tensor.py(592): backward"):
                main.signal(START)
                main.wait_signal(DONE)
            with (
                main.annotation("Optimizer.step#AdamW.step"),
                main.frame("torch/optim/adamw.py(68): step"),
            ):
                self._optimise(main, is_sharded)
            with main.annotation("Optimizer.zero_grad#AdamW.zero_grad"):
                main.spend(60_000)
        back.wait_signal(START)
        self._backward(back, comm, is_sharded)
        back.signal(DONE)
        return main.template(), back.template()

    def _fetch(self, script: Script, waits: bool) -> None:
        """The next batch: it is there, or the loop waits for a worker."""
        setup, knobs = self.setup, self.knobs
        note = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        with (
            script.annotation(note),
            script.frame("torch/utils/data/dataloader.py(733): __next__"),
            script.frame("torch/utils/data/dataloader.py(1482): _next_data"),
        ):
            script.spend(70_000, 0.3)
            with (
                script.frame("torch/utils/data/dataloader.py(1310): _try_get_data"),
                script.frame("queue.py(171): get"),
            ):
                script.spend(30_000, 0.4)
                if knobs.loader_ms and waits:
                    with script.extra():
                        script.pause(knobs.loader_ms * 1e6)
        dims = f'"Input Dims": [[{setup.batch}, {setup.context}]]'
        for _ in range(2):
            with (
                script.op("aten::to", dims),
                script.op("aten::_to_copy", dims),
                script.op("aten::copy_", dims),
            ):
                rate = setup.gpu.pcie_bytes_per_s
                work = self.kernels.copy("HtoD (Pinned -> Device)", 8 * self.tokens, rate)
                script.launch(work, call="cudaMemcpyAsync", ns=4_500)

    def _forward(self, script: Script, comm: Collectives, is_sharded: bool) -> None:
        model = self.setup.model
        self._launch(script, self._embed())
        if is_sharded:
            self._communicate(script, comm, "all_gather", self._layer_bytes(), "gathered0")
        for layer in range(model.layers):
            if is_sharded:
                if layer + 1 < model.layers:
                    event = f"gathered{layer + 1}"
                    self._communicate(script, comm, "all_gather", self._layer_bytes(), event)
                script.wait(f"gathered{layer}", 0)
            for item in self._layer():
                self._launch(script, item)
        for item in self._loss():
            self._launch(script, item)

    def _backward(self, script: Script, comm: Collectives, is_sharded: bool) -> None:
        model, knobs = self.setup.model, self.knobs
        for item in self._loss(backward=True):
            self._launch(script, item, backward=True)
        late: list[float] = []
        buckets = -(-model.layers // BUCKET_LAYERS)
        kept_back = round(knobs.late_reduce * buckets)
        for layer in range(model.layers):
            if is_sharded:
                event = f"regathered{layer}"
                self._communicate(script, comm, "all_gather", self._layer_bytes(), event)
                if layer == 0:
                    script.wait(event, 0)
                else:
                    script.wait(f"regathered{layer - 1}", 0)
            for item in self._layer(backward=True):
                self._launch(script, item, backward=True)
            if is_sharded:
                self._reduce(script, comm, "reduce_scatter", self._layer_bytes(), f"grads{layer}")
            elif layer % BUCKET_LAYERS == BUCKET_LAYERS - 1 or layer == model.layers - 1:
                payload = self._layer_bytes() * BUCKET_LAYERS
                if len(late) < kept_back:
                    late.append(payload)
                else:
                    self._reduce(script, comm, "all_reduce", payload, f"grads{layer}")
        for number, payload in enumerate(late):
            self._reduce(script, comm, "all_reduce", payload, f"late{number}")
        payload = 2.0 * model.vocab * model.hidden
        how = "reduce_scatter" if is_sharded else "all_reduce"
        self._reduce(script, comm, how, payload, "grads_last")
        script.record("reduced", COMM_STREAM)

    def _optimise(self, script: Script, is_sharded: bool) -> None:
        """The fused optimizer in a few launches over chunks of the parameters, once all gradients are there."""
        model, setup = self.setup.model, self.setup
        script.wait("reduced", 0)
        elements = self._layer_bytes() / 2 * model.layers + model.vocab * model.hidden
        if is_sharded:
            elements /= setup.ranks
        chunks = max(2, model.layers // 2)
        for _ in range(chunks):
            with script.op("aten::_fused_adamw_", '"Input type": ["TensorList"]', 9_000):
                work = self.kernels.pointwise(
                    names.ADAM,
                    "optimizer",
                    elements / chunks,
                    inputs=5.5,
                    width=4.0,
                    family="optimizer",
                )
                script.launch(work)
            script.spend(30_000)

    # -- kernels ----------------------------------------------------------------------------------

    def _layer_bytes(self) -> float:
        """Parameters of a layer in BF16."""
        model = self.setup.model
        width = (model.heads + 2 * model.kv_heads + model.heads) * model.head_dim
        return 2.0 * (model.hidden * width + 3.0 * model.hidden * model.intermediate)

    def _embed(self) -> Item:
        model = self.setup.model
        work = self.kernels.pointwise(
            names.INDEX, "embedding", self.tokens * model.hidden, family="index"
        )
        return (
            "aten::embedding",
            f'"Input Dims": [[{model.vocab}, {model.hidden}], [{self.tokens}]]',
            work,
        )

    def _layer(self, *, backward: bool = False) -> Iterator[Item]:
        """Kernels of a layer, forward or backward; backward has two products for one."""
        setup, kernels, tokens = self.setup, self.kernels, self.tokens
        model = setup.model
        hidden, dim = model.hidden, model.head_dim
        qkv = (model.heads + 2 * model.kv_heads) * dim

        def products(n: int, k: int, role: str) -> Iterator[Item]:
            dims = f'"Input type": ["c10::BFloat16", "c10::BFloat16"], "Input Dims": [[{tokens}, {k}], [{k}, {n}]]'
            if not backward:
                yield "aten::mm", dims, kernels.gemm(tokens, n, k, role)
                return
            turned = dims.replace(
                f"[[{tokens}, {k}], [{k}, {n}]]", f"[[{tokens}, {n}], [{n}, {k}]]"
            )
            yield "aten::mm", turned, kernels.gemm(tokens, k, n, role)
            turned = dims.replace(
                f"[[{tokens}, {k}], [{k}, {n}]]", f"[[{n}, {tokens}], [{tokens}, {k}]]"
            )
            yield "aten::mm", turned, kernels.gemm(n, k, tokens, role)

        def norm(number: int) -> Item:
            return (
                "triton_red_fused",
                "",
                kernels.norm(tokens * (2 if backward else 1), hidden, number),
            )

        attention = (
            "aten::_flash_attention_backward" if backward else "aten::_flash_attention_forward",
            f'"Input Dims": [[{setup.batch}, {model.heads}, {setup.context}, {dim}]]',
            kernels.attention_training(
                setup.batch, setup.context, model.heads, dim, backward=backward
            ),
        )
        rotary = ("triton_poi_fused_cat_3", "", kernels.rotary(tokens, qkv))
        active = (
            "triton_poi_fused_mul_silu_1",
            "",
            kernels.activation(tokens, model.intermediate * (2 if backward else 1)),
        )
        parts: list[Iterator[Item]] = [
            iter([norm(0)]),
            products(qkv, hidden, "qkv"),
            iter([rotary]),
            iter([attention]),
            products(hidden, model.heads * dim, "o_proj"),
            iter([norm(2)]),
            products(2 * model.intermediate, hidden, "gate_up"),
            iter([active]),
            products(hidden, model.intermediate, "down"),
        ]
        for part in reversed(parts) if backward else parts:
            yield from part

    def _loss(self, *, backward: bool = False) -> Iterator[Item]:
        model, tokens = self.setup.model, self.tokens
        dims = f'"Input Dims": [[{tokens}, {model.hidden}], [{model.hidden}, {model.vocab}]]'
        elements = float(tokens) * model.vocab
        if not backward:
            yield "aten::mm", dims, self.kernels.gemm(tokens, model.vocab, model.hidden, "lm_head")
            work = self.kernels.pointwise(names.CROSS_ENTROPY, "loss", elements)
            yield "aten::log_softmax", f'"Input Dims": [[{tokens}, {model.vocab}]]', work
            return
        work = self.kernels.pointwise(
            names.CROSS_ENTROPY.replace("Forward", "Backward"), "loss", elements
        )
        yield "aten::_log_softmax_backward_data", f'"Input Dims": [[{tokens}, {model.vocab}]]', work
        turned = f'"Input Dims": [[{tokens}, {model.vocab}], [{model.vocab}, {model.hidden}]]'
        yield "aten::mm", turned, self.kernels.gemm(tokens, model.hidden, model.vocab, "lm_head")
        turned = f'"Input Dims": [[{model.vocab}, {tokens}], [{tokens}, {model.hidden}]]'
        yield "aten::mm", turned, self.kernels.gemm(model.vocab, model.hidden, tokens, "lm_head")

    def _launch(self, script: Script, item: Item, *, backward: bool = False) -> None:
        op, dims, work = item
        call, category = "cudaLaunchKernel", "cuda_runtime"
        if op.startswith("triton"):
            call, category = "cuLaunchKernel", "cuda_driver"
        elif "nvjet" in work.label.name:
            call = "cudaLaunchKernelExC"
        if backward:
            node = {"aten::mm": "MmBackward0"}.get(op, "CompiledFunctionBackward")
            with (
                script.op(f"autograd::engine::evaluate_function: {node}", ns=4_000),
                script.op(node, ns=3_000),
                script.op(op, dims, 4_500),
            ):
                script.launch(work, call=call, category=category)
        else:
            with script.op(op, dims, 5_500):
                script.launch(work, call=call, category=category)
        script.spend(3_000, 0.3)

    def _reduce(
        self, script: Script, comm: Collectives, how: str, payload: float, event: str
    ) -> None:
        """Reduce what the compute stream has produced so far."""
        script.record(event, 0)
        script.wait(event, COMM_STREAM)
        self._communicate(script, comm, how, payload, f"{event}_done")

    def _communicate(
        self, script: Script, comm: Collectives, how: str, payload: float, event: str
    ) -> None:
        op = {"all_reduce": "nccl:all_reduce", "all_gather": "nccl:_all_gather_base"}.get(
            how, "nccl:_reduce_scatter_base"
        )
        with (
            script.op("record_param_comms", comm.describe(how, payload), 6_000),
            script.annotation(op),
        ):
            work, number = comm.add(how, payload)
            script.launch(
                work, COMM_STREAM, call="cudaLaunchKernelExC", ns=6_500, collective=number
            )
        script.record(event, COMM_STREAM)
