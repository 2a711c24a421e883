"""What is masked, what is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.planted import SECRETS, TELLTALES
from tokenpath.core.redact import MASK, Redactor


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize("around", ["{}", "before {} after", "x({})", 'k="{}"'])
def test_a_secret_is_masked(kind: str, around: str) -> None:
    (masked,) = Redactor().mask([around.format(SECRETS[kind])])
    assert not [telltale for telltale in TELLTALES if telltale in masked]


@pytest.mark.parametrize(
    "text",
    [
        "void cuda::per_token_cast_to_fp8_with_channels<__nv_bfloat16, 128, false>(__nv_bfloat16*)",
        "ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_1LDSB0_APM1",
        "triton_poi_fused_add_mul_0",
        "aten::_scaled_dot_product_flash_attention",
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
        "step[DECODE bs=32 toks=32 g_sq=32]",
        "max_token=128 num_tokens: 4096",
        "Token::kFoo secret::Holder key: 5",
        "AscendCL@aclnnInplaceZero Dequeue@aclnnMm memcpy@@GLIBC_2.14",
        "vllm/v1/worker/gpu_model_runner.py(3102): _model_forward",
        "<built-in method stride of Tensor object at 0x7bc2e88a7890>",
        "torch/nn/modules/module.py(1553): _call_impl",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "Memcpy HtoD (Pageable -> Device)",
        "nn.Module: Linear_0",
        "[[32, 1024], [1024, 4096], []]",
        "sk-1 asia AKIA Basic types, CUDA 12.4.1",
        "ProfilerStep#12 12:30:15 a::b::c::d::e",
    ],
)
def test_names_of_kernels_and_code_are_left_alone(text: str) -> None:
    assert Redactor().mask([text]) == [text]


def test_pseudonyms_are_stable_within_a_capture() -> None:
    redactor = Redactor()
    first = redactor.mask(["/home/ann/a.py", "/home/bob/b.py", "user=ann"])
    assert first == ["/home/user-0/a.py", "/home/user-1/b.py", "user=user-0"]
    assert redactor.mask(["/Users/bob/c.py"]) == ["/Users/user-1/c.py"]
    assert redactor.mask(first) == first


def test_a_known_host_is_masked_everywhere() -> None:
    redactor = Redactor()
    assert redactor.host("node17") == "host-0"
    assert redactor.mask(["run on NODE17.", "node170"]) == ["run on host-0.", "node170"]
    assert redactor.host("other9") == "host-1"


def test_hosts_can_be_kept_and_nothing_else() -> None:
    redactor = Redactor(keep_hosts=True)
    assert redactor.host("node17") == "node17"
    assert redactor.mask(["gpu-1.local", "password=hunter22"]) == [
        "gpu-1.local",
        f"password={MASK}",
    ]


@given(st.lists(st.text(max_size=40), max_size=8))
def test_masking_keeps_order_and_number(texts: list[str]) -> None:
    masked = Redactor().mask(texts)
    assert len(masked) == len(texts)
    assert Redactor().mask(masked) == masked


def test_a_hundred_thousand_names_are_cheap() -> None:
    """One search a marker, not one a name: names without markers are not looked at."""
    names = [
        f"void at::native::vectorized_elementwise_kernel<{number}>" for number in range(100_000)
    ]
    assert Redactor().mask(names) == names
