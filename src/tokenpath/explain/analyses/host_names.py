"""What named host items mean, where programs and profilers name them."""

from __future__ import annotations

import re

COMPILE = re.compile(
    r"torch/_dynamo/(?:convert_frame|output_graph|symbolic_convert)|torch/_inductor/(?:compile_fx|codecache|graph"
    r"|scheduler|async_compile|codegen)|triton/(?:compiler|backends)|triton/runtime/(?:autotuner|build)"
    r"|\bconvert_frame|compile_fx|nvrtcCompile|cu(?:da)?ModuleLoad|cu(?:da)?LibraryLoad|hipModuleLoad|cuLink"
    r"|hiprtcCompile|CachingAutotuner|async_compile",
    re.ASCII,
)
"""Compilers at work, and the loading of what they made."""
GARBAGE = re.compile(
    r"Python GC|built-in (?:function|method) collect\b|\bgc\.py|gc_collect|garbage", re.IGNORECASE
)
"""Garbage collection where it is recorded: asked for, or as the profiler's own event."""
LOADER = re.compile(
    r"enumerate\(DataLoader\)|DataLoaderIter|dataloader\.py\(\d+\): (?:__next__|_next_data|_get_data|_try_get_data)"
    r"|dataset\w*\.py\(\d+\): __(?:next|getitem)__|datapipe|grain.*__next__",
    re.IGNORECASE | re.ASCII,
)
"""A training loop that asks for its next batch."""
SAMPLING = re.compile(
    r"^aten::(?:_?(?:log_)?softmax|sort|topk|multinomial|argmax|cumsum|exponential_|argsort|masked_fill_?|gather"
    r"|scatter_?|bernoulli_?|div_?|max|where|le|lt|gt|sub_?|logsumexp|uniform_)$"
)
"""Operators of sampling a token from logits; the same names run on a device and on the host."""
SAMPLING_CORE = re.compile(
    r"^aten::(?:_?(?:log_)?softmax|sort|topk|multinomial|argmax|exponential_|argsort)$"
)
"""Those of them that make it sampling."""
