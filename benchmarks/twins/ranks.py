"""The programs of the real pairs that take several processes: training steps over gloo."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import nn
from twins.programs import WIDTH, Block, Step


def _parts(layers: int = 4) -> tuple[nn.Sequential, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(layers)])
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def _reduce_flat(model: nn.Module) -> None:
    """One all-reduce over all gradients."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    at = 0
    for gradient in gradients:
        gradient.copy_(flat[at : at + gradient.numel()].view_as(gradient))
        at += gradient.numel()


def _train(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: torch.Tensor, reduce: bool = True
) -> None:
    optimiser.zero_grad()
    model(batch).square().mean().backward()
    if reduce:
        _reduce_flat(model)
    optimiser.step()


def _late(late_rank: int) -> Callable[[bool], Iterator[Step]]:
    def program(is_faulty: bool) -> Iterator[Step]:
        model, optimiser = _parts()
        batch = torch.randn(64, WIDTH)

        def fetch(_: int) -> torch.Tensor:
            if is_faulty and dist.get_rank() == late_rank:
                time.sleep(0.008)
            return batch

        yield lambda number: _train(model, optimiser, fetch(number))

    return program


def rank_imbalance(is_faulty: bool) -> Iterator[Step]:
    model, optimiser = _parts()
    rows = 192 if is_faulty and dist.get_rank() == 0 else 64
    batch = torch.randn(rows, WIDTH)
    yield lambda _: _train(model, optimiser, batch)


def small_messages(is_faulty: bool) -> Iterator[Step]:
    model, optimiser = _parts(layers=2)
    scales = nn.ParameterList([nn.Parameter(torch.zeros(16)) for _ in range(120)])
    model.append(nn.Identity())
    model[-1].register_module("scales", scales)
    batch = torch.randn(32, WIDTH)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(_: int) -> None:
        optimiser.zero_grad()
        extra = torch.stack([scale.sum() for scale in scales]).sum()
        (model(batch).square().mean() + 0.0 * extra).backward()
        if is_faulty:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
        else:
            _reduce_flat(model)
        optimiser.step()

    yield step


def late_communication(is_faulty: bool) -> Iterator[Step]:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*[Block(384) for _ in range(4)])
    if not is_faulty:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(96, 384)
    yield lambda _: _train(model, optimiser, batch, reduce=is_faulty)


RANK_PROGRAMS: dict[str, Callable[[bool], Iterator[Step]]] = {
    "straggler": _late(1),
    "straggler-of-four": _late(2),
    "rank-imbalance": rank_imbalance,
    "small-messages": small_messages,
    "late-communication": late_communication,
}
"""Programs of several processes, by twin."""
