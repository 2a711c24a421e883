"""The number type in which a matrix kernel multiplies, from its name; None where the name does not tell."""

from __future__ import annotations

import re
from functools import lru_cache

_RULES = tuple(
    (re.compile(pattern), dtype)
    for pattern, dtype in (
        # FP8 and integers first: their names also hold the type of the output.
        (r"e4m3|e5m2|fp8|_f8|float8|nvjet_q", "fp8"),
        (r"xmma_gemm_i8i8|imma|int8|_i8ii|s8_s8", "int8"),
        # cuBLASLt's nvjet: the first letter is the type of the inputs.
        (r"nvjet_(?:sm\d+_)?t", "bf16"),
        (r"nvjet_(?:sm\d+_)?h", "fp16"),
        (r"nvjet_(?:sm\d+_)?s", "tf32"),
        (r"tf32", "tf32"),
        # Tensile: the letters after the layout are the types of inputs, output and arithmetic.
        (r"cijk_\w+?_bbs_|cijk_\w+?_bss_", "bf16"),
        (r"cijk_\w+?_h[hs]s_|cijk_\w+?_hb_", "fp16"),
        (r"cijk_\w+?_s(?:b|s)_|cijk_\w+?_ss?s_", "fp32"),
        (r"bf16|bfloat16", "bf16"),
        (r"f16f16|fp16|_f16|hgemm|h884|h1688|h16816|__half|c10::half", "fp16"),
        # Tensor cores on FP32 inputs round them to TF32 (CUTLASS, tensorop_s1688gemm).
        (r"tensorop_s1688gemm|tensorop_s16816gemm", "tf32"),
        (r"sgemm|xmma_gemm_f32f32|simt_s|gemm_f32|gemv\w*<[^>]*\bfloat\b", "fp32"),
    )
)


@lru_cache(4096)
def dtype_of_name(name: str) -> str | None:
    """`bf16`, `fp16`, `tf32`, `fp32`, `fp8`, `int8`, or None."""
    lowered = name.lower()
    for pattern, dtype in _RULES:
        if pattern.search(lowered):
            return dtype
    return None
