"""The program that drives the machine: an LLM server with faults injected at known places.

One of two tensor-parallel ranks of a model with the layer shapes of Llama 3 8B (a quarter of its
layers, so that the trace stays small), scheduled as vLLM does it: the host prepares a step while the
device runs the one before, then fetches the tokens of that one. Lengths of kernels follow a roofline of an
H100 SXM (989 TFLOP/s dense bf16, 3.35 TB/s) at usual efficiencies; they are typical, not measured.
"""

from __future__ import annotations

from collections.abc import Callable

from synthetic_machine import COMMUNICATION_STREAM as NCCL
from synthetic_machine import COMPUTE_STREAM as MAIN
from synthetic_machine import COPY_STREAM as COPY
from synthetic_machine import Happening, Machine, Node

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB, LAYERS = 4096, 32, 8, 128, 14336, 128_256, 8
NUM_RANKS = 2
CONTEXT = 1200
"""Tokens in the KV cache of each request in decode."""
BATCH = 32
PROMPT_TOKENS = 1024

QKV = (HEADS + 2 * KV_HEADS) * HEAD_DIM // NUM_RANKS
GEMM = "nvjet_tst_{}_64x6_2x1_v_bz_TNT"
ATTENTION = (
    "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<"
    "flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, "
    "cute::tuple<cute::C<128>, cute::C<128>, cute::C<128> >, 128, cutlass::bfloat16_t, float, "
    "cutlass::arch::Sm90, true, false, false, true, true, false> > > >"
)
NORM = (
    "std::enable_if<(8>0)&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>"
)
ROTARY = "void vllm::rotary_embedding_kernel<c10::BFloat16, true>"
KV_WRITE = (
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, "
    "(vllm::Fp8KVCacheDataType)0>"
)
SILU = "void vllm::act_and_mul_kernel<c10::BFloat16, &(vllm::silu_kernel<c10::BFloat16>), true>"
ALL_REDUCE_SMALL = "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ALL_GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ARGMAX = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, "
    "unsigned int, long, 4, 4> >"
)
ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >"
)
BITMASK = "apply_token_bitmask_inplace_kernel"


def roofline_ns(flops: float, num_bytes: float) -> int:
    """Length of a kernel with this much to compute and to move."""
    return 1500 + int(max(flops / (989e12 * 0.65), num_bytes / (3.35e12 * 0.8)) * 1e9)


def gemm_ns(tokens: int, rows: int, columns: int) -> int:
    """Length of a bf16 matmul [tokens, rows] x [rows, columns]."""
    moved = 2 * (rows * columns + tokens * (rows + columns))
    return roofline_ns(2.0 * tokens * rows * columns, moved)


def all_reduce_ns(tokens: int) -> int:
    """Length of an all-reduce of the hidden states over NVLink, at 280 GB/s."""
    return 9000 + tokens * HIDDEN * 2 * 1000 // 280_000


def layer(tokens: int) -> list[tuple[str, str, int, str]]:
    """One decode layer on one stream: (operator, kernel, length, kind of work)."""
    attended = tokens * CONTEXT * 2 * KV_HEADS // NUM_RANKS * HEAD_DIM * 2
    down = gemm_ns(tokens, FFN // NUM_RANKS, HIDDEN)
    up = gemm_ns(tokens, HIDDEN, 2 * FFN // NUM_RANKS)
    out = gemm_ns(tokens, HEADS * HEAD_DIM // NUM_RANKS, HIDDEN)
    reduce = ("_C_custom_ar::all_reduce", ALL_REDUCE_SMALL, 7500, "communication")
    norm = ("_C::fused_add_rms_norm", NORM, 2100, "compute")
    return [
        norm,
        ("aten::mm", GEMM.format("128x32"), gemm_ns(tokens, HIDDEN, QKV), "compute"),
        ("_C::rotary_embedding", ROTARY, 1900, "compute"),
        ("_C_cache_ops::reshape_and_cache_flash", KV_WRITE, 1800, "compute"),
        ("_vllm_fa3_C::fwd", ATTENTION, roofline_ns(0, attended), "compute"),
        ("aten::mm", GEMM.format("64x32"), out, "compute"),
        reduce,
        norm,
        ("aten::mm", GEMM.format("192x32"), up, "compute"),
        ("_C::silu_and_mul", SILU, 2400, "compute"),
        ("aten::mm", GEMM.format("128x32"), down, "compute"),
        reduce,
    ]


class Server:
    """The engine process: steps, one after the other, with the host one step ahead."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tokens_of_last_step: Happening | None = None

    def run(self) -> None:
        """All steps; the faults stand where they are injected."""
        m = self.machine
        with m.frame("threading.py(1032): _bootstrap"), m.frame("core.py(701): run_busy_loop"):
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            with m.injected("slow scheduler"):
                self.schedule(2_300_000)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.fetch()
            with m.injected("no requests"):
                self.wait_for_requests(3_400_000)
            self.step(f"execute_context_1({PROMPT_TOKENS})_generation_0(0)", self.prefill)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.step("execute_context_0(0)_generation_32(32)", self.decode_with_item)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.step("execute_context_0(0)_generation_32(32)", self.decode_with_blocking_copy)
            self.step("execute_context_0(0)_generation_32(32)", self.decode_with_grammar)
            self.step("execute_context_0(0)_generation_33(33)", self.decode_without_graph)
            self.step("execute_context_0(0)_generation_33(33)", self.decode_without_graph)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.step("execute_context_0(0)_generation_32(32)", self.decode)
            self.fetch()

    # -- the engine -------------------------------------------------------------------------------

    def step(self, label: str, model: Callable[[], None]) -> None:
        """One step: schedule, run the model, start the copy of its tokens, fetch those of the last."""
        m = self.machine
        self.schedule(m.about(90_000))
        with (
            m.frame("gpu_worker.py(446): execute_model"),
            m.annotation(label),
            m.frame("gpu_model_runner.py(2108): execute_model"),
        ):
            model()
            before, done = self.tokens_of_last_step, m.record(MAIN)
            m.wait(COPY, done)
            with m.op("aten::copy_"):
                m.copy(BATCH * 8, "DtoH (Device -> Pinned)", stream=COPY, bytes_per_us=800)
            self.tokens_of_last_step = m.record(COPY)
        if before is not None:
            with m.frame("gpu_model_runner.py(183): get_output"):
                m.synchronize_event(before)
        with m.frame("scheduler.py(903): update_from_output"):
            m.spend(m.about(60_000))

    def schedule(self, duration_ns: int) -> None:
        """The scheduler, in Python."""
        with self.machine.frame("scheduler.py(183): schedule"):
            self.machine.spend(duration_ns)

    def fetch(self) -> None:
        """Wait for the tokens of the last step."""
        if self.tokens_of_last_step is not None:
            with self.machine.frame("gpu_model_runner.py(183): get_output"):
                self.machine.synchronize_event(self.tokens_of_last_step)
        self.tokens_of_last_step = None

    def wait_for_requests(self, duration_ns: int) -> None:
        """The engine has nothing to do."""
        m = self.machine
        acquire = "<built-in method acquire of _thread.lock object at 0x7f0000001000>"
        with (
            m.frame("core.py(745): _process_input_queue"),
            m.frame("queue.py(154): get", "host_wait"),
            m.frame("threading.py(327): wait", "host_wait"),
            m.frame(acquire, "host_wait"),
        ):
            m.spend(duration_ns)

    # -- steps ------------------------------------------------------------------------------------

    def inputs(self) -> None:
        """Inputs of the step to the device, from pinned memory."""
        m = self.machine
        with m.frame("gpu_model_runner.py(1011): _prepare_inputs"):
            for num_bytes in (BATCH * 8, BATCH * 4, 4 * (BATCH + 1)):
                m.spend(m.about(14_000))
                with m.op("aten::copy_"):
                    m.copy(num_bytes, "HtoD (Pinned -> Device)", bytes_per_us=800)

    def decode(self) -> None:
        """A decode step from a graph."""
        self.inputs()
        self.replay()
        self.logits(BATCH)
        self.sample()

    def replay(self) -> None:
        """The layers of a decode step as one graph."""
        m = self.machine
        nodes = [
            Node(kernel, m.about(length), kind)
            for _ in range(LAYERS)
            for _, kernel, length, kind in layer(BATCH)
        ]
        with m.frame("cuda_graph.py(121): __call__"):
            m.replay(17, nodes)

    def logits(self, tokens: int) -> None:
        """Output projection; every rank has half of the vocabulary, so the halves are gathered."""
        m = self.machine
        with m.frame("logits_processor.py(52): forward"):
            length = gemm_ns(tokens, HIDDEN, VOCAB // NUM_RANKS)
            self.kernel("aten::mm", GEMM.format("256x32"), length)
            self.collective("_allgather_base", ALL_GATHER, all_reduce_ns(tokens * 16), tokens)

    def sample(self) -> None:
        """Greedy sampling."""
        m = self.machine
        with m.frame("sampler.py(64): forward"):
            self.kernel("aten::add_", ELEMENTWISE, 9000)
            self.kernel("aten::argmax", ARGMAX, 14_000)

    def decode_with_item(self) -> None:
        """Someone asks for a value of a tensor: the host waits until the device has run dry."""
        m = self.machine
        self.inputs()
        self.replay()
        self.logits(BATCH)
        for _ in range(4):
            with (
                m.injected("item() in the sampler"),
                m.op("aten::item"),
                m.op("aten::_local_scalar_dense"),
            ):
                m.copy(4, "DtoH (Device -> Pageable)", bytes_per_us=800)
                m.synchronize()
            with m.frame("logits_processor.py(88): penalties"):
                m.spend(m.about(45_000))
        self.sample()

    def decode_with_blocking_copy(self) -> None:
        """Blocks of the KV cache come from the host with a copy that blocks it."""
        m = self.machine
        with m.frame("kv_connector.py(214): load_blocks"):
            for _ in range(4):
                with m.injected("blocking copy of KV blocks"), m.op("kv_connector::load_blocks"):
                    m.copy(1 << 20, "HtoD (Pageable -> Device)", blocks=True, bytes_per_us=9000)
                m.spend(m.about(30_000))
        self.decode()

    def decode_with_grammar(self) -> None:
        """A token mask is computed by a callback on the host, and the device waits for it."""
        m = self.machine
        self.inputs()
        self.replay()
        self.logits(BATCH)
        with (
            m.injected("token mask computed by a host callback"),
            m.frame("structured_output.py(301): grammar_bitmask"),
        ):
            m.wait(COPY, m.record(MAIN))
            m.host_function(420_000, COPY)
            m.wait(MAIN, m.record(COPY))
            self.kernel("xgrammar::apply_token_bitmask", BITMASK, 6000)
        self.sample()

    def decode_without_graph(self) -> None:
        """No graph was captured for this batch size: every kernel is launched by itself."""
        m = self.machine
        self.inputs()
        with m.injected("batch size without a graph"):
            for _ in range(LAYERS):
                with m.frame("llama.py(309): forward"):
                    for op, kernel, length, kind in layer(BATCH + 1):
                        m.spend(m.about(9000))
                        self.kernel(op, kernel, length, kind, dispatch_ns=14_000)
        self.logits(BATCH + 1)
        self.sample()

    def prefill(self) -> None:
        """A prompt, without a graph; half of each MLP's all-reduce is hidden behind its other half."""
        m, tokens = self.machine, PROMPT_TOKENS
        self.inputs()
        for number in range(LAYERS):
            with m.frame("llama.py(309): forward"):
                self.kernel("_C::fused_add_rms_norm", NORM, 6000)
                if number == 1:
                    with m.injected("cudaMalloc in prefill"), m.op("aten::empty"):
                        m.call("cudaMalloc", 1_250_000, "host_allocator")
                self.kernel("aten::mm", GEMM.format("256x128"), gemm_ns(tokens, HIDDEN, QKV))
                self.kernel("_C::rotary_embedding", ROTARY, 6500)
                self.kernel("_C_cache_ops::reshape_and_cache_flash", KV_WRITE, 4200)
                flops = 2.0 * tokens * tokens * HEADS // NUM_RANKS * HEAD_DIM
                self.kernel("_vllm_fa3_C::fwd", ATTENTION, roofline_ns(flops, 0))
                out = gemm_ns(tokens, HEADS * HEAD_DIM // NUM_RANKS, HIDDEN)
                self.kernel("aten::mm", GEMM.format("128x128"), out)
                self.collective("allreduce_", ALL_REDUCE, all_reduce_ns(tokens), tokens)
                self.mlp(tokens)
        self.logits(1)
        self.sample()

    def mlp(self, tokens: int) -> None:
        """The MLP in two halves of the tokens: the first half's all-reduce runs beside the second."""
        m, half = self.machine, tokens // 2
        self.kernel("_C::fused_add_rms_norm", NORM, 6000)
        with m.op("aten::zero_"):
            m.fill(4 * tokens)
        last = None
        for _ in range(2):
            up = gemm_ns(half, HIDDEN, 2 * FFN // NUM_RANKS)
            self.kernel("aten::mm", GEMM.format("256x128"), up)
            self.kernel("_C::silu_and_mul", SILU, 5200)
            down = gemm_ns(half, FFN // NUM_RANKS, HIDDEN)
            self.kernel("aten::mm", GEMM.format("192x128"), down)
            last = self.start_collective("allreduce_", ALL_REDUCE, all_reduce_ns(half), half)
        if last is not None:
            m.wait(MAIN, last)

    # -- pieces -----------------------------------------------------------------------------------

    def kernel(
        self, op: str, name: str, length_ns: int, kind: str = "compute", dispatch_ns: int = 3000
    ) -> None:
        """One operator that launches one kernel."""
        m = self.machine
        with m.op(op, dispatch_ns):
            m.launch(name, m.about(length_ns), kind=kind)

    def start_collective(self, op: str, name: str, length_ns: int, tokens: int) -> Happening:
        """A collective on its own stream behind what the compute stream has; the event of its end."""
        m = self.machine
        # Now and then the other rank is late.
        late = m.rng.randint(40_000, 90_000) if m.rng.random() < 0.1 else 0
        with m.op(f"c10d::{op}", 6000):
            m.wait(NCCL, m.record(MAIN))
            m.launch(
                name,
                m.about(length_ns) + late,
                kind="communication",
                stream=NCCL,
                grid=(16, 1, 1),
                **{
                    "Collective name": "allreduce" if "reduce" in op else "_allgather_base",
                    "In msg nelems": tokens * HIDDEN,
                    "Out msg nelems": tokens * HIDDEN * (1 if "reduce" in op else NUM_RANKS),
                    "Group size": NUM_RANKS,
                    "dtype": "BFloat16",
                    "Process Group Name": "2",
                    "Process Group Description": "tp",
                },
            )
            return m.record(NCCL)

    def collective(self, op: str, name: str, length_ns: int, tokens: int) -> None:
        """A collective that the compute stream waits for."""
        self.machine.wait(MAIN, self.start_collective(op, name, length_ns, tokens))
