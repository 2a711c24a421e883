"""A scenario made ready to run: part and model found, memory planned, step latency chosen, engines built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import UsageError
from tokenpath.core.hardware import Hardware, find_candidates, load_catalogue
from tokenpath.core.model_catalogue import Model, find_model
from tokenpath.simulate.calibrate import CalibratedStepModel
from tokenpath.simulate.cold_start import ColdStart, cold_start
from tokenpath.simulate.engines import (
    batch_limits,
    block_tokens,
    engine_settings,
    make_scheduler,
)
from tokenpath.simulate.loop_run import (
    Simulated,
    simulate_disaggregated,
    simulate_vllm,
    simulate_workload,
)
from tokenpath.simulate.memory import MemoryPlan, plan_memory, weight_bytes_per_rank
from tokenpath.simulate.physics.deployment import ENGINES as KERNEL_SETS
from tokenpath.simulate.physics.deployment import Deployment
from tokenpath.simulate.physics.model import PhysicsModel, physics_model
from tokenpath.simulate.recorder import ShareSink
from tokenpath.simulate.recorder_tables import RunFacts, capture_of_run
from tokenpath.simulate.replica import Replica, ReplicaSettings
from tokenpath.simulate.router import Router, make_router
from tokenpath.simulate.scenario import Scenario
from tokenpath.simulate.step_model import StepCurve, StepModel
from tokenpath.simulate.tiers import TierSettings
from tokenpath.simulate.transfer import TransferSettings
from tokenpath.simulate.workload.workload import Workload

_LARGE_BYTES = 70 * 2**30


@dataclass(frozen=True)
class Ran:
    """One run of a deployed scenario."""

    simulated: Simulated
    """What happened."""
    capture: Capture
    """The same as tables."""
    facts: RunFacts
    """What the tables say of the run beside what happened in it."""


@dataclass(frozen=True)
class Deployed:
    """A scenario with all that it needs to run."""

    scenario: Scenario
    """What was asked."""
    deployment: Deployment | None
    """Model, part and layout; None without a model."""
    step_model: StepModel
    """How long a step takes."""
    memory: MemoryPlan | None
    """Where a rank's memory goes; None where blocks were given."""
    num_blocks: int
    """KV blocks of each scheduler."""
    max_tokens: int
    """Most tokens of a step."""
    max_seqs: int
    """Most requests of a step."""
    longest: int
    """Longest request of the workload, prompt and output."""
    num_runs: int = 1
    """How many runs there will be."""
    decode: Deployed | None = None
    """Replicas that only decode; None: all do both."""

    @property
    def num_gpus(self) -> int:
        """Devices of all replicas."""
        at = self.scenario
        own = at.tp * at.pp * at.dp * (at.replicas + at.late_replicas)
        return own if self.decode is None else own + self.decode.num_gpus

    def run(
        self,
        workload: Workload,
        curve: StepCurve | None = None,
        *,
        decode_curve: StepCurve | None = None,
        detail: str = "request",
        sink: ShareSink | None = None,
        stops_on_overload: bool = True,
    ) -> Ran:
        """Run a workload; `curve` None: the step model's own. `decode_curve`: of decode replicas with another model."""
        at = self.scenario
        send_ns, deliver_ns = self._frontend(workload)
        round_trip_ns = send_ns + deliver_ns
        late = [self.cold_start().total_ns] * at.late_replicas if at.late_replicas else []
        ready = [0] * at.replicas + late
        own = curve or self.step_model.curve
        decode = self.decode
        if decode is not None:
            shared = curve if decode.step_model is self.step_model else None
            theirs = decode_curve or shared or decode.step_model.curve
            simulated = simulate_disaggregated(
                workload,
                self.make_replicas(own, ready),
                decode.make_replicas(theirs, [0] * decode.scenario.replicas),
                self._transfer(decode),
                prefill_router=self._router(),
                decode_router=self._router(),
                round_trip_ns=round_trip_ns,
                detail=detail,
                sink=sink,
                stops_on_overload=stops_on_overload,
            )
        elif self._is_plain:
            simulated = simulate_vllm(
                workload,
                self._engine_settings(),
                self._with_noise(own),
                [self._replica_settings(ready_ns) for ready_ns in ready],
                self._router(),
                round_trip_ns=round_trip_ns,
                detail=detail,
                sink=sink,
                stops_on_overload=stops_on_overload,
                num_runs=self.num_runs,
            )
        else:
            simulated = simulate_workload(
                workload,
                self.make_replicas(own, ready),
                self._router(),
                round_trip_ns=round_trip_ns,
                detail=detail,
                sink=sink,
                stops_on_overload=stops_on_overload,
            )
        blocks = self.usable_blocks(len(ready))
        if decode is not None:
            blocks += decode.usable_blocks(decode.scenario.replicas)
        facts = RunFacts(
            name=workload.name,
            engine=at.engine,
            total_blocks=blocks,
            send_ns=send_ns,
            deliver_ns=deliver_ns,
            settings=self.settings(),
        )
        capture = capture_of_run(simulated.rows, workload, facts, tokens=detail == "token")
        return Ran(simulated, capture, facts)

    def cold_start(self) -> ColdStart:
        """What starting a replica takes; its weights are the model's where nothing else is said."""
        asked = self.scenario.cluster.cold_start
        if asked.weight_bytes is None and self.deployment is not None:
            ranks = self.deployment.num_ranks
            asked = replace(asked, weight_bytes=ranks * weight_bytes_per_rank(self.deployment))
        return cold_start(asked)

    def settings(self) -> dict[str, str]:
        """Everything that was set or resolved, as text by name."""
        at = self.scenario
        plain = {f.name: getattr(at, f.name) for f in fields(at)}
        for section in ("engine_settings", "decode_settings", "cluster", "slo"):
            del plain[section]
        found = {name: str(value) for name, value in plain.items() if value is not None}
        found |= {name: str(value) for name, value in at.engine_settings.items()}
        found |= at.cluster.values()
        if self.decode is not None:
            theirs = dict(pair.split("=", 1) for pair in at.decode_settings)
            theirs |= {
                "num_blocks": str(self.decode.num_blocks),
                "step_model": self.decode.step_model.origin,
            }
            found |= {f"decode.{name}": value for name, value in theirs.items()}
        return found | {"num_blocks": str(self.num_blocks), "step_model": self.step_model.origin}

    def _with_noise(self, curve: StepCurve) -> StepCurve:
        run = self.scenario.cluster.run
        if not run.step_noise:
            return replace(curve, noise=None)
        if curve.noise is None and isinstance(self.step_model, CalibratedStepModel):
            noise = self.step_model.noise
            return curve if noise is None else replace(curve, noise=noise.draw(run.seed))
        return curve

    @property
    def _is_plain(self) -> bool:
        """Whether the compiled loop can run it."""
        at = self.scenario
        has_more = at.cluster.make_speculation() is not None or self._tiers() is not None
        return at.engine == "vllm" and at.dp == 1 and not has_more

    @property
    def _looks_ahead(self) -> bool:
        """Whether a step is decided while another runs."""
        at = self.scenario
        if at.async_steps is not None:
            return at.async_steps
        return at.engine == "vllm" and isinstance(self.step_model, PhysicsModel)

    def _replica_settings(self, ready_ns: int) -> ReplicaSettings:
        at = self.scenario
        in_flight = max(at.pp, 2 if self._looks_ahead else 1)
        return ReplicaSettings(steps_in_flight=in_flight, num_stages=at.pp, ready_ns=ready_ns)

    def make_replicas(self, curve: StepCurve, ready_ns: Sequence[int]) -> list[Replica]:
        """New replicas, one for each time from which on it takes requests."""
        at, noisy = self.scenario, self._with_noise(curve)
        return [
            Replica(
                [make_scheduler(self._engine_settings()) for _ in range(at.dp)],
                noisy,
                self._replica_settings(one),
                tiers=self._tiers(),
                speculation=at.cluster.make_speculation(),
            )
            for one in ready_ns
        ]

    def usable_blocks(self, num_replicas: int) -> list[int]:
        """KV blocks of each scheduler of so many replicas."""
        usable = make_scheduler(self._engine_settings()).num_usable_blocks
        return [usable] * (self.scenario.dp * num_replicas)

    def _tiers(self) -> TierSettings | None:
        cluster = self.scenario.cluster
        if cluster.tiers.host_bytes == 0 and cluster.tiers.disk_bytes == 0:
            return None
        at = self.known_deployment("tiers.host_bytes")
        return cluster.make_tiers(at.kv_bytes_per_token() * at.num_ranks)

    def _engine_settings(self) -> Any:
        at = self.scenario
        ahead = {"async_scheduling": True} if at.engine == "vllm" and self._looks_ahead else {}
        return engine_settings(
            at.engine,
            {**ahead, **at.engine_settings},
            num_blocks=self.num_blocks,
            max_tokens=self.max_tokens,
            max_seqs=self.max_seqs,
            longest=self.longest,
            version=at.engine_version,
        )

    def _router(self) -> Router:
        return make_router(self.scenario.cluster.router)

    def _transfer(self, decode: Deployed) -> TransferSettings:
        cluster = self.scenario.cluster
        per_token = cluster.transfer.kv_bytes_per_token
        if per_token is None:
            sides = (self, decode)
            where = "decode_replicas, or transfer.kv_bytes_per_token"
            # Each rank has a port; the one with most to send or to take is what a transfer waits for.
            per_token = max(one.known_deployment(where).kv_bytes_per_token() for one in sides)
        known: float = per_token
        hardware = None if self.deployment is None else self.deployment.hardware
        return cluster.make_transfer(lambda tokens: known * tokens, hardware, self.scenario.engine)

    def known_deployment(self, where: str) -> Deployment:
        """Model, part and layout; UsageError, saying `where` they are needed, where none were named."""
        if self.deployment is None:
            raise UsageError(
                "the KV bytes of a token are not known",
                where=where,
                allowed="a model and a GPU",
                next_step="name both: --model NAME --gpu NAME",
            )
        return self.deployment

    def _frontend(self, workload: Workload) -> tuple[int, int]:
        """From client to engine, and back."""
        client = self.scenario.cluster.client
        if client.send_ns or client.deliver_ns:
            return client.send_ns, client.deliver_ns
        if isinstance(self.step_model, PhysicsModel):
            mean_prompt = float(workload.prompt_tokens.mean())
            return self.step_model.frontend_ns_of(mean_prompt), 0
        if isinstance(self.step_model, CalibratedStepModel):
            delays = self.step_model.overheads
            ways = (delays.arrival, delays.delivery)
            send_ns, deliver_ns = (0 if way is None else round(way.mean_ns) for way in ways)
            return send_ns, deliver_ns
        return 0, 0


def deploy(
    scenario: Scenario,
    workload: Workload,
    step_model: StepModel | None = None,
    *,
    decode_model: StepModel | None = None,
    num_runs: int = 1,
) -> Deployed:
    """Make a scenario ready for workloads no longer than this one.

    `step_model` None: physics; `decode_model` None: physics too, or the same model. Raises UsageError or InputError for what cannot be: unknown names, a layout
    that does not divide, a model that does not fit, naming the limit and the nearest value that works.
    """
    if workload.num_requests == 0:
        raise UsageError("a workload without requests", allowed="one request or more")
    longest = int((workload.prompt_tokens + workload.output_tokens).max())
    at = None
    if scenario.model is not None and scenario.gpu is not None:
        model = find_model(scenario.model).quantised(scenario.quantisation)
        at = _deployment(scenario, model, find_gpu(scenario.gpu))
    elif step_model is None:
        missing = "model" if scenario.model is None else "GPU"
        raise UsageError(
            f"no {missing} named",
            allowed="a model and a GPU, or a calibrated step model",
            next_step="--model llama-3.1-8b --gpu H100, or --step-model model.json",
        )
    is_large = at is None or (
        at.hardware.memory_bytes >= _LARGE_BYTES and not at.hardware.key.startswith("a100")
    )
    max_tokens, max_seqs = batch_limits(scenario.engine, scenario.engine_settings, is_large)
    memory = None
    num_blocks = scenario.num_blocks
    if num_blocks is None and at is not None:
        memory = plan_memory(
            at,
            utilisation=scenario.gpu_memory_utilization,
            block_tokens=block_tokens(scenario.engine, scenario.engine_settings),
            max_tokens=max_tokens,
            max_seqs=max_seqs,
            max_model_tokens=longest,
        )
        num_blocks = memory.num_blocks
    if num_blocks is None:
        raise UsageError(
            "the number of KV blocks is not known",
            allowed="num_blocks as the engine printed it, or a model and a GPU",
            next_step="--set num_blocks=N",
        )
    chosen = step_model
    if chosen is None and at is not None:
        chosen = physics_model(at)
    if chosen is None:
        raise UsageError("no step model", next_step="name a model and a GPU, or a step model")
    decode = None
    if scenario.decode_replicas:
        decode = deploy(scenario.of_decode, workload, decode_model or step_model)
        if decode_model is None and decode.deployment == at:
            decode = replace(decode, step_model=chosen)
    limits = max_tokens, max_seqs, longest
    return Deployed(scenario, at, chosen, memory, num_blocks, *limits, num_runs, decode)


def find_gpu(name: str) -> Hardware:
    """The accelerator of a name; of several forms of one part the SXM module, which servers have.

    UsageError with the nearest keys for a name that none goes by.
    """
    found = find_candidates(name)
    if found:
        return min(found, key=lambda hw: ("sxm" not in hw.key, found.index(hw)))
    keys = list(load_catalogue())
    near = get_close_matches(name.lower(), keys, n=3, cutoff=0.3)
    raise UsageError(
        f"unknown GPU {name!r}",
        where="--gpu",
        allowed=", ".join(keys),
        next_step=f"nearest: {', '.join(near)}" if near else None,
    )


def _deployment(scenario: Scenario, model: Model, hardware: Hardware) -> Deployment:
    return Deployment(
        model=model,
        hardware=hardware,
        # The baselines run vLLM's kernels.
        engine=next((known for known in KERNEL_SETS if known == scenario.engine), "vllm"),
        engine_version=scenario.engine_version,
        tp=scenario.tp,
        pp=scenario.pp,
        dp=scenario.dp,
        ep=scenario.ep,
        kv_dtype=scenario.kv_dtype,
        expert_imbalance=scenario.expert_imbalance,
    )
