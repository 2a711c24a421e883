"""Record a small decoder-only transformer with torch.profiler on the CPU; made examples/data.

    python examples/record_transformer.py out/trace.json.gz

Needs PyTorch (2.13.0 made the shipped trace), which is no dependency of the package. One prefill of a
batch and some decode steps with a KV cache, each under an annotation in the form that vLLM writes. Before
the trace is written, `scrub_trace` takes out everything that tells about the machine.
"""

from __future__ import annotations

import argparse
import gzip
import json
import tempfile
from pathlib import Path

import torch
from scrub_trace import Scrubber
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function

LAYERS, HIDDEN, HEADS, FFN, VOCAB = 2, 128, 4, 384, 2048
BATCH, PROMPT_TOKENS, DECODE_STEPS, WARM_UP_STEPS = 4, 48, 10, 2


class Cache:
    """Keys and values of one layer, for all tokens so far."""

    def __init__(self, tokens_max: int) -> None:
        shape = (BATCH, HEADS, tokens_max, HIDDEN // HEADS)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self.length = 0

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store new tokens and give back all, [batch, heads, tokens, head size]."""
        end = self.length + keys.shape[2]
        self.keys[:, :, self.length : end] = keys
        self.values[:, :, self.length : end] = values
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]


class Block(nn.Module):
    """Attention and MLP, each behind a norm and with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False)
        self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate_up = nn.Linear(HIDDEN, 2 * FFN, bias=False)
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, hidden: Tensor, cache: Cache) -> Tensor:
        """[batch, tokens, hidden] to the same."""
        batch, tokens, _ = hidden.shape
        qkv = self.qkv(self.attention_norm(hidden))
        query, key, value = qkv.view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        keys, values = cache.append(key, value)
        attended = functional.scaled_dot_product_attention(
            query, keys, values, is_causal=tokens > 1
        )
        hidden = hidden + self.out(attended.transpose(1, 2).reshape(batch, tokens, HIDDEN))
        gate, up = self.gate_up(self.mlp_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.down(functional.silu(gate) * up)


class Transformer(nn.Module):
    """Token ids to the logits of the last token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, HIDDEN)
        self.positions = nn.Embedding(PROMPT_TOKENS + DECODE_STEPS + WARM_UP_STEPS, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN)

    def forward(self, tokens: Tensor, caches: list[Cache]) -> Tensor:
        """[batch, tokens] to [batch, vocabulary]."""
        first = caches[0].length
        at = torch.arange(first, first + tokens.shape[1])
        hidden = self.embedding(tokens) + self.positions(at)
        for block, cache in zip(self.blocks, caches, strict=True):
            hidden = block(hidden, cache)
        return functional.linear(self.norm(hidden[:, -1]), self.embedding.weight)


def new_caches() -> list[Cache]:
    """An empty cache a layer."""
    return [Cache(PROMPT_TOKENS + DECODE_STEPS + WARM_UP_STEPS) for _ in range(LAYERS)]


def generate(model: Transformer, prompt: Tensor, num_steps: int) -> Tensor:
    """Prefill and greedy decode; the new tokens, [batch, num_steps + 1]."""
    caches = new_caches()
    batch, length = prompt.shape
    with record_function(f"execute_context_{batch}({batch * length})_generation_0(0)"):
        token = model(prompt, caches).argmax(dim=-1, keepdim=True)
    found = [token]
    for _ in range(num_steps):
        with record_function(f"execute_context_0(0)_generation_{batch}({batch})"):
            token = model(token, caches).argmax(dim=-1, keepdim=True)
        found.append(token)
    return torch.cat(found, dim=1)


def record(path: Path) -> None:
    """Run once to warm up, once under the profiler, and write what that saw."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Transformer().eval()
    prompt = torch.randint(VOCAB, (BATCH, PROMPT_TOKENS))
    with torch.inference_mode():
        generate(model, prompt, WARM_UP_STEPS)
        with profile(
            activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True
        ) as profiler:
            generate(model, prompt, DECODE_STEPS)
    profiler.export_chrome_trace(str(path))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path, help="trace to write: NAME.json.gz")
    path: Path = parser.parse_args().path
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.json"
        record(raw)
        trace = json.loads(raw.read_text(encoding="utf-8"))
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(Scrubber().scrub(trace), separators=(",", ":")).encode()
    path.write_bytes(gzip.compress(data, 9, mtime=0))
    print(path)


if __name__ == "__main__":
    main()
