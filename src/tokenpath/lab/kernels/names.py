"""Long names of kernels, as the libraries' symbols demangle."""

from __future__ import annotations

from math import ceil

_TILE = "cute::tuple<cute::C<128>, cute::C<{keys}>, cute::C<128> >"
_ONE = "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >"


def _fa3(keys: int, scheduler: str, flags: str) -> str:
    inner = (
        f"flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, {_ONE}, "
        f"{_TILE.format(keys=keys)}, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90, {flags}>, "
        f"flash::CollectiveEpilogueFwd<{_TILE.format(keys=128)}, {_ONE}, cutlass::bfloat16_t, "
        f"cutlass::arch::Sm90, 256, true, true, false, false>, {scheduler} > >"
    )
    return f"void cutlass::device_kernel<{inner} >({inner}::Params)"


FA3_PREFILL = _fa3(
    128,
    "flash::VarlenDynamicPersistentTileScheduler<128, 256, 128, false, true, true>",
    "true, false, false, true, true, false, false, true, true, true, false, false",
)
FA3_DECODE = _fa3(
    176,
    "flash::VarlenDynamicPersistentTileScheduler<64, 128, 128, true, true, true>",
    "false, false, false, true, true, false, false, true, true, true, true, false",
)
FA3_COMBINE = (
    "void cutlass::device_kernel<flash::FlashAttnFwdCombine<cute::tuple<cute::C<8>, cute::C<128> >, 5, 256, 1, "
    "false, true, cutlass::bfloat16_t, float, cutlass::arch::Sm90> >(flash::FlashAttnFwdCombine<cute::tuple<"
    "cute::C<8>, cute::C<128> >, 5, 256, 1, false, true, cutlass::bfloat16_t, float, cutlass::arch::Sm90>::Params)"
)
_FA2_TRAITS = (
    "Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >"
)
FA2_FORWARD = f"void flash_fwd_kernel<{_FA2_TRAITS}, false, true, false, false, true, true, false, false>(Flash_fwd_params)"
_FA2_BWD_TRAITS = (
    "Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t, "
    "Flash_kernel_traits<128, 64, 128, 8, cutlass::bfloat16_t> >"
)
FA2_BACKWARD = (
    f"void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{_FA2_BWD_TRAITS}, false, true, false, false, true, true, "
    "false>(Flash_bwd_params)"
)
CACHE = (
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>("
    "__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*, long, long, long, "
    "long, long, int, int, int, float const*, float const*)"
)
ARGMAX = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, "
    "long, 4> >(at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4>)"
)
SOFTMAX = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::"
    "(anonymous namespace)::SoftMaxForwardEpilogue>(float*, float const*, int)"
)
CAST = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::"
    "{lambda()#3}::operator()() const::{lambda()#7}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul>, "
    "4, TrivialOffsetCalculator<1, unsigned int>, TrivialOffsetCalculator<1, unsigned int>, at::native::memory::"
    "LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, std::array<char*, 2ul>)"
)
CAST_BACK = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda("
    "at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int, at::native::"
    "bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>)"
)
STRIDED_COPY = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    "direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() "
    "const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
)
INDEX = (
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>("
    "at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>, unsigned int, long)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul> >(int, "
    "at::native::FillFunctor<int>, std::array<char*, 1ul>)"
)
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
    "(at::native::(anonymous namespace)::ADAM_MODE)1, false>, float const*, double, double, double, double, double, "
    "bool, float*, float*>(at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>)"
)
CROSS_ENTROPY = (
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::"
    "(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)"
)


def binary(functor: str) -> str:
    """A pointwise kernel of ATen with two inputs, such as `MulFunctor<float>` or `CUDAFunctor_add<float>`."""
    return (
        f"void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
        f"c10::BFloat16, at::native::binary_internal::{functor}>, std::array<char*, 3ul> >(int, at::native::"
        f"BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::{functor}>, "
        f"std::array<char*, 3ul>)"
    )


def unary(kernel: str) -> str:
    """A pointwise kernel of ATen with one input, such as `silu_kernel`."""
    return (
        f"void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::{kernel}("
        f"at::TensorIteratorBase&)::{{lambda()#1}}::operator()() const::{{lambda()#6}}::operator()() const::"
        f"{{lambda(c10::BFloat16)#1}}, std::array<char*, 2ul> >(int, std::array<char*, 2ul>)"
    )


ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, "
    "3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
CHAIN = (
    unary("pow_tensor_scalar_kernel_impl"),
    binary("MulFunctor<float>"),
    ADD,
    unary("tanh_kernel_cuda"),
    binary("DivFunctor<float>"),
    unary("sigmoid_kernel_cuda"),
)
"""What an activation is made of when nothing fuses it."""


def tile_of(m: int, n: int, sms: int) -> tuple[int, int]:
    """Rows and columns of the tile that cuBLAS would take: large if that fills the device."""
    rows = 64 if m <= 64 else 128
    for columns in (256, 128, 64):
        if ceil(m / rows) * ceil(n / columns) >= 0.8 * sms:
            return rows, columns
    return 64, 64


def gemm_name(style: str, tile_m: int, tile_n: int, m: int) -> tuple[str, int, int, int]:
    """Name, registers, shared memory and threads of a matrix product in BF16."""
    if style == "cutlass":
        kernel = f"cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_{tile_m}x{tile_n}_64x4_tn_align8"
        return f"void cutlass::Kernel2<{kernel}>({kernel}::Params)", 218, 147_456, 256
    if style == "nvjet":
        cluster = "2x1" if m > 64 else "1x2"
        schedule = "v_bz_coopA" if m > 512 else "v_bz"
        return f"nvjet_tst_{tile_n}x{tile_m}_64x5_{cluster}_{schedule}_TNT", 168, 213_016, 384
    return (
        (
            f"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize{tile_m}x{tile_n}x64_warpgroupsize1x1x1_"
            "execute_segment_k_off_kernel__5x_cublas"
        ),
        168,
        231_424,
        384,
    )
