"""Python frames of real engines, by what they do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Engine:
    """Frames of one engine."""

    process: str
    """Name of the process."""
    step: str
    """One turn of the loop."""
    execute: str
    """Running the model."""
    prepare: str
    """Building the inputs."""
    forward: str
    """The model."""
    replay: str
    """Launching a graph."""
    logits: str
    """Output head."""
    sample: str
    """Sampler."""
    output: str
    """Waiting for the tokens of the step before."""
    dequeue: str
    """Where a worker without scheduler waits for its next step."""
    scheduling: tuple[tuple[str, float], ...]
    """Functions of the scheduler before the step, each with its time in ns."""
    updating: tuple[tuple[str, float], ...]
    """Functions after it."""
    idle: tuple[str, ...]
    """Where the loop waits when there are no requests, outermost first."""
    background_outer: tuple[str, ...]
    """Frames of the second thread that are always open."""
    background: tuple[str, ...]
    """What the second thread does now and then."""
    collect: str
    """Where garbage collection shows up when the profiler does not record it."""
    scheduler_in_worker: bool
    """Whether every rank runs the scheduler."""

    always_open: tuple[str, ...] = ()
    """Frames of the launching thread that are always open; empty: those of a server's worker."""

    def schedules(self, ranks: int) -> bool:
        """Whether the scheduler runs on the launching thread."""
        return self.scheduler_in_worker or ranks == 1

    def outer(self, ranks: int) -> tuple[str, ...]:
        """Frames of the launching thread that are always open."""
        if self.always_open:
            return self.always_open
        base = (
            "<string>(1): <module>",
            "multiprocessing/spawn.py(122): spawn_main",
            "multiprocessing/process.py(108): run",
        )
        if self.scheduler_in_worker:
            return (
                *base,
                "sglang/srt/managers/scheduler.py(2871): run_scheduler_process",
                "sglang/srt/managers/scheduler.py(1009): event_loop_overlap",
            )
        if ranks == 1:
            return (
                *base,
                "vllm/v1/engine/core.py(629): run_engine_core",
                "vllm/v1/engine/core.py(716): run_busy_loop",
            )
        return (
            *base,
            "vllm/v1/executor/multiproc_executor.py(559): worker_main",
            "vllm/v1/executor/multiproc_executor.py(638): worker_busy_loop",
        )


VLLM = Engine(
    process="VLLM::EngineCore",
    step="vllm/v1/engine/core.py(310): step_with_batch_queue",
    execute="vllm/v1/worker/gpu_model_runner.py(2240): execute_model",
    prepare="vllm/v1/worker/gpu_model_runner.py(992): _prepare_inputs",
    forward="vllm/compilation/cuda_graph.py(119): __call__",
    replay="torch/cuda/graphs.py(120): replay",
    logits="vllm/model_executor/models/llama.py(633): compute_logits",
    sample="vllm/v1/sample/sampler.py(68): forward",
    output="vllm/v1/worker/gpu_model_runner.py(168): get_output",
    dequeue="vllm/distributed/device_communicators/shm_broadcast.py(474): dequeue",
    scheduling=(
        ("vllm/v1/core/sched/scheduler.py(183): schedule", 240_000.0),
        ("vllm/v1/core/kv_cache_manager.py(221): allocate_slots", 110_000.0),
        ("vllm/v1/structured_output/__init__.py(191): grammar_bitmask", 30_000.0),
    ),
    updating=(
        ("vllm/v1/core/sched/scheduler.py(921): update_from_output", 210_000.0),
        ("vllm/v1/core/sched/utils.py(42): check_stop", 60_000.0),
    ),
    idle=(
        "vllm/v1/engine/core.py(731): _process_input_queue",
        "queue.py(171): get",
        "threading.py(355): wait",
    ),
    background_outer=(
        "threading.py(1032): _bootstrap",
        "threading.py(1075): _bootstrap_inner",
        "threading.py(1012): run",
    ),
    background=(
        "vllm/v1/engine/core.py(842): process_output_sockets",
        "vllm/v1/serial_utils.py(127): encode_into",
    ),
    collect="<built-in function collect>",
    scheduler_in_worker=False,
)

SGLANG = Engine(
    process="sglang::scheduler",
    step="sglang/srt/managers/scheduler.py(1010): run_batch",
    execute="sglang/srt/managers/tp_worker.py(236): forward_batch_generation",
    prepare="sglang/srt/model_executor/forward_batch_info.py(354): init_new",
    forward="sglang/srt/model_executor/model_runner.py(1988): forward",
    replay="sglang/srt/model_executor/cuda_graph_runner.py(806): replay",
    logits="sglang/srt/layers/logits_processor.py(251): forward",
    sample="sglang/srt/layers/sampler.py(58): forward",
    output="sglang/srt/managers/overlap_utils.py(57): resolve_future",
    dequeue="sglang/srt/managers/scheduler.py(1107): recv_requests",
    scheduling=(
        ("sglang/srt/managers/scheduler.py(1107): recv_requests", 60_000.0),
        ("sglang/srt/managers/scheduler.py(1774): get_next_batch_to_run", 190_000.0),
        ("sglang/srt/managers/schedule_policy.py(97): calc_priority", 90_000.0),
        ("sglang/srt/mem_cache/radix_cache.py(263): match_prefix", 60_000.0),
    ),
    updating=(
        (
            "sglang/srt/managers/scheduler_output_processor_mixin.py(199): process_batch_result_decode",
            210_000.0,
        ),
        ("sglang/srt/managers/scheduler_output_processor_mixin.py(548): stream_output", 90_000.0),
    ),
    idle=(
        "sglang/srt/managers/scheduler.py(1107): recv_requests",
        "zmq/sugar/poll.py(80): poll",
    ),
    background_outer=(
        "threading.py(1032): _bootstrap",
        "threading.py(1075): _bootstrap_inner",
        "threading.py(1012): run",
    ),
    background=(
        "sglang/srt/managers/scheduler.py(2533): watchdog_thread",
        "sglang/srt/metrics/collector.py(391): log_stats",
    ),
    collect="<built-in function collect>",
    scheduler_in_worker=True,
)

HUGGING_FACE = Engine(
    process="python",
    step="transformers/generation/utils.py(2757): _sample",
    execute="transformers/models/llama/modeling_llama.py(419): forward",
    prepare="transformers/generation/utils.py(571): prepare_inputs_for_generation",
    forward="transformers/models/llama/modeling_llama.py(336): forward",
    replay="torch/cuda/graphs.py(120): replay",
    logits="torch/nn/modules/linear.py(124): forward",
    sample="transformers/generation/logits_process.py(88): __call__",
    output="transformers/generation/stopping_criteria.py(497): __call__",
    dequeue="transformers/generation/streamers.py(87): put",
    scheduling=(),
    updating=(),
    idle=("threading.py(355): wait",),
    background_outer=VLLM.background_outer,
    background=("tqdm/_monitor.py(60): run", "threading.py(655): wait"),
    collect="<built-in function collect>",
    scheduler_in_worker=False,
    always_open=(
        "generate.py(1): <module>",
        "generate.py(58): main",
        "torch/utils/_contextlib.py(116): decorate_context",
        "transformers/generation/utils.py(2264): generate",
    ),
)

ENGINES = {"vllm": VLLM, "sglang": SGLANG, "hf": HUGGING_FACE, "vllm-moe": VLLM}
