"""Kernels as the libraries name and launch them on Hopper GPUs.

Names, blocks, registers and shared memory are those that profiles of vLLM, SGLang, PyTorch, FlashAttention 3,
cuBLAS and NCCL show; grids follow from the shapes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from tokenpath.core import costs
from tokenpath.core.costs import Cost
from tokenpath.core.hardware import Hardware
from tokenpath.lab.kernels import names
from tokenpath.lab.kernels.times import Efficiencies, kernel_ns
from tokenpath.lab.machine import loop as at
from tokenpath.lab.machine.script import DeviceLabel, Work

WARPS_PER_SM = 64
REGISTERS_PER_SM = 65_536
SHARED_PER_SM = 233_472
SHARED_DEFAULT = 49_152


@dataclass
class Kernels:
    """All kernels of one scenario, with the faults that change a kernel itself."""

    hardware: Hardware
    """The part."""
    shares: Efficiencies
    """How much of its peaks the libraries reach."""
    gemm_style: str
    """`nvjet` or `xmma`: generation of cuBLAS."""
    factors: dict[str, float] = field(default_factory=dict)
    """Factor on the time of a role's kernels, nothing else changed."""
    tail_waves: dict[str, int] = field(default_factory=dict)
    """Full waves before one nearly empty wave, by role of a matrix product."""
    occupancy: dict[str, float] = field(default_factory=dict)
    """Factor on the time of a role whose kernels hold too many registers."""
    single: dict[str, float] = field(default_factory=dict)
    """Share of a role's products that run in FP32."""
    _counts: dict[str, int] = field(default_factory=dict)

    # -- matrix products --------------------------------------------------------------------------

    def gemm(self, m: int, n: int, k: int, role: str) -> Work:
        """`[m, k] x [k, n]`."""
        cost = costs.matmul(m, n, k, "bf16")
        seen = self._counts[role] = self._counts.get(role, 0) + 1
        share = self.single.get(role, 0.0)
        if int(seen * share) > int((seen - 1) * share):
            return self._single(m, n, k, role)
        ns = kernel_ns(cost, self.hardware, "bf16", "gemm", self.shares)
        sms = self.hardware.num_cores
        tile_m, tile_n = names.tile_of(m, n, sms)
        blocks = ceil(m / tile_m) * ceil(n / tile_n)
        name, regs, shared, threads = names.gemm_name(self.gemm_style, tile_m, tile_n, m)
        grid = (min(blocks, sms), 1, 1)
        waves = self.tail_waves.get(role)
        if waves is not None:
            # One block an SM, and a few blocks more than full waves.
            name, regs, shared, threads = names.gemm_name("cutlass", 128, 128, m)
            grid = (waves * sms + 3, 1, 1)
            ns *= (waves + 1) / (waves + 3 / sms)
        return self._work(name, role, ns, grid, (threads, 1, 1), regs, shared)

    def _single(self, m: int, n: int, k: int, role: str) -> Work:
        cost = costs.matmul(m, n, k, "fp32")
        ns = kernel_ns(cost, self.hardware, "fp32", "gemm", self.shares)
        grid = (ceil(n / 128), ceil(m / 64), 1)
        return self._work("ampere_sgemm_128x64_tn", role, ns, grid, (128, 1, 1), 122, 12_544)

    def grouped_gemm(
        self, assignments: int, touched: float, n: int, k: int, experts: int, role: str
    ) -> Work:
        """Products of `assignments` rows with the matrices of `touched` experts."""
        weights = touched * n * k
        cost = Cost(
            2.0 * assignments * n * k, (weights + assignments * k) * 2.0, assignments * n * 2.0
        )
        ns = kernel_ns(cost, self.hardware, "bf16", "moe", self.shares)
        padded = ceil(assignments / 64) + experts
        grid = (padded * ceil(n / 128), 1, 1)
        return self._work("fused_moe_kernel", role, ns, grid, (256, 1, 1), 168, 98_304)

    # -- attention --------------------------------------------------------------------------------

    def attention_decode(
        self, batch: int, context: int, heads: int, kv_heads: int, head_dim: int
    ) -> Work:
        """One query a request over its cache, keys split over the device."""
        one = costs.attention_decode(
            context, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim
        )
        ns = kernel_ns(one * batch, self.hardware, "bf16", "attention", self.shares)
        grid = (self.hardware.num_cores, 1, 1)
        return self._work(
            names.FA3_DECODE, "attention_decode", ns, grid, (256, 1, 1), 255, 150_528, scales=True
        )

    def attention_unsplit(
        self, batch: int, context: int, heads: int, kv_heads: int, head_dim: int, factor: float
    ) -> Work:
        """The same with one block a request and KV head."""
        one = costs.attention_decode(
            context, num_heads=heads, num_kv_heads=kv_heads, head_dim=head_dim
        )
        ns = kernel_ns(one * batch, self.hardware, "bf16", "attention", self.shares) * factor
        grid = (1, batch, kv_heads)
        return self._work(
            names.FA2_FORWARD, "attention_decode", ns, grid, (128, 1, 1), 255, 81_920, scales=True
        )

    def attention_combine(self, batch: int, heads: int, head_dim: int) -> Work:
        """Merging of the partial results of split keys."""
        cost = Cost(0.0, 16.0 * batch * heads * head_dim * 4.0, 2.0 * batch * heads * head_dim)
        ns = kernel_ns(cost, self.hardware, "bf16", "elementwise", self.shares) + 900
        grid = (ceil(batch * heads / 8), 1, 1)
        return self._work(names.FA3_COMBINE, "combine", ns, grid, (256, 1, 1), 42, 17_536)

    def attention_prefill(
        self, num_new: int, context: int, heads: int, kv_heads: int, head_dim: int
    ) -> Work:
        """Many queries of one request."""
        cost = costs.attention_prefill(
            num_new,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            num_context=context,
        )
        ns = kernel_ns(cost, self.hardware, "bf16", "attention", self.shares)
        grid = (self.hardware.num_cores, 1, 1)
        return self._work(
            names.FA3_PREFILL, "attention_prefill", ns, grid, (384, 1, 1), 168, 166_912
        )

    def attention_training(
        self, batch: int, length: int, heads: int, head_dim: int, *, backward: bool
    ) -> Work:
        """Causal attention of training, forward or backward."""
        one = costs.attention_prefill(
            length, num_heads=heads, num_kv_heads=heads, head_dim=head_dim
        )
        cost = one * batch * (2.5 if backward else 1.0)
        name, regs, shared = names.FA2_FORWARD, 255, 49_152
        family = "attention"
        if backward:
            name, regs, shared = names.FA2_BACKWARD, 255, 147_456
        ns = kernel_ns(cost, self.hardware, "bf16", family, self.shares) * (1.35 if backward else 1)
        grid = (ceil(length / 128), batch, heads)
        role = "attention_backward" if backward else "attention_forward"
        return self._work(name, role, ns, grid, (256 if backward else 128, 1, 1), regs, shared)

    # -- the rest ---------------------------------------------------------------------------------

    def norm(self, tokens: int, hidden: int, number: int) -> Work:
        """RMS norm with the residual addition, fused by the compiler."""
        cost = Cost(0.0, 3.0 * tokens * hidden * 2.0, 2.0 * tokens * hidden * 2.0)
        ns = kernel_ns(cost, self.hardware, "bf16", "norm", self.shares) + 1_500
        name = f"triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_{number}"
        return self._work(name, "norm", ns, (tokens, 1, 1), (512, 1, 1), 29, 64)

    def rotary(self, tokens: int, width: int) -> Work:
        """Rotary embedding of queries and keys."""
        return self.pointwise(
            "triton_poi_fused_cat_3", "rotary", tokens * width, inputs=1.5, regs=64
        )

    def activation(self, tokens: int, width: int) -> Work:
        """SiLU of the gate times the other half."""
        name = "triton_poi_fused_mul_silu_1"
        return self.pointwise(name, "activation", tokens * width, inputs=2.0, regs=32)

    def cache(self, tokens: int, kv_width: int) -> Work:
        """Writing of keys and values into the cache."""
        cost = Cost(0.0, tokens * kv_width * 2.0, tokens * kv_width * 2.0)
        ns = kernel_ns(cost, self.hardware, "bf16", "index", self.shares) + 900
        return self._work(names.CACHE, "cache", ns, (tokens, 1, 1), (256, 1, 1), 22, 0)

    def pointwise(
        self,
        name: str,
        role: str,
        elements: float,
        *,
        inputs: float = 1.0,
        width: float = 2.0,
        regs: int = 18,
        family: str = "elementwise",
    ) -> Work:
        """A kernel limited by memory: so many inputs and one output of `width` bytes an element."""
        cost = Cost(0.0, inputs * elements * width, elements * width)
        ns = kernel_ns(cost, self.hardware, "bf16", family, self.shares)
        grid = (max(1, ceil(elements / 1024)), 1, 1)
        return self._work(name, role, ns, grid, (128, 1, 1), regs, 0)

    def fixed(self, name: str, role: str, ns: float, grid: int = 1, threads: int = 128) -> Work:
        """A small kernel of a known length."""
        return self._work(name, role, ns, (grid, 1, 1), (threads, 1, 1), 32, 0)

    def copy(self, direction: str, num_bytes: int, bytes_per_s: float) -> Work:
        """A copy of the copy engine; `direction` such as `HtoD (Pinned -> Device)`."""
        ns = 900.0 + num_bytes / bytes_per_s * 1e9
        args = f'"bytes": {num_bytes}, "memory bandwidth (GB/s)": {num_bytes / ns:.6f}'
        label = DeviceLabel("gpu_memcpy", f"Memcpy {direction}", args)
        kind = at.KERNEL if "DtoD" in direction else at.COPY
        return Work(label, ns, "copy", kind)

    def fill(self, num_bytes: int) -> Work:
        """A memset."""
        ns = 860.0 + num_bytes / 2.2e12 * 1e9
        args = f'"bytes": {num_bytes}, "memory bandwidth (GB/s)": {num_bytes / ns:.6f}'
        return Work(DeviceLabel("gpu_memset", "Memset (Device)", args), ns, "fill")

    def collective(
        self, name: str, blocks: int, threads: int, regs: int, shared: int, more: str = ""
    ) -> Work:
        """A communication kernel; its transfer is stated beside it."""
        text = self._args((blocks, 1, 1), (threads, 1, 1), regs, shared)
        args = f"{text}, {more}" if more else text
        return Work(DeviceLabel("kernel", name, args), 0.0, "communication", at.COLLECTIVE)

    def _work(
        self,
        name: str,
        role: str,
        ns: float,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        regs: int,
        shared: int,
        *,
        scales: bool = False,
    ) -> Work:
        held = self.occupancy.get(role)
        if held is not None:
            ns *= held
            threads = block[0] * block[1] * block[2]
            # One block must fit: 255 registers of 512 threads are more than a multiprocessor has.
            regs = min(255, REGISTERS_PER_SM // threads // 8 * 8)
            shared = min(SHARED_DEFAULT - 1024, shared + 40_960)
        ns *= self.factors.get(role, 1.0)
        label = DeviceLabel("kernel", name, self._args(grid, block, regs, shared))
        return Work(label, ns, role, scales=scales)

    def _args(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], regs: int, shared: int
    ) -> str:
        threads = block[0] * block[1] * block[2]
        blocks = grid[0] * grid[1] * grid[2] / self.hardware.num_cores
        warps = ceil(threads / 32)
        by_registers = REGISTERS_PER_SM // (ceil(regs / 8) * 8 * threads)
        # As libkineto estimates it: what asks for more than the default shared memory fits nowhere.
        by_shared = 0 if shared > SHARED_DEFAULT else SHARED_PER_SM // (shared + 1024)
        resident = min(by_registers, by_shared, WARPS_PER_SM // warps, 32, blocks)
        occupancy = int(100 * resident * warps / WARPS_PER_SM + 0.5)
        return (
            f'"registers per thread": {regs}, "shared memory": {shared}, '
            f'"blocks per SM": {blocks:.6f}, "warps per SM": {blocks * warps:.6f}, '
            f'"grid": [{grid[0]}, {grid[1]}, {grid[2]}], '
            f'"block": [{block[0]}, {block[1]}, {block[2]}], '
            f'"est. achieved occupancy %": {occupancy}'
        )
