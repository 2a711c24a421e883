"""The programs of the real pairs: each runs steps under a profiler, healthy or with its one fault.

A program is a function `(is_faulty, step) -> None` made by a factory, so that set-up stays outside the recording.
They are ordinary PyTorch programs on the CPU: nothing in them is written for the profiler.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch.nn import functional

Step = Callable[[int], None]
WIDTH = 256
"""Width of the layers: small enough for a recording of tens of kilobytes a step."""


class Block(nn.Module):
    """One decoder layer without attention: norm, up, gate, down."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(functional.silu(self.up(self.norm(x))))


class SmallOperators(Block):
    """The same layer, its norm and activation spelled out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = x * x
        mean = square.mean(-1, keepdim=True) + 1e-6
        root = torch.sqrt(mean)
        inverse = 1.0 / root
        normed = x * inverse
        normed = normed * self.norm.weight
        up = self.up(normed)
        negative = -up
        exponent = torch.exp(negative)
        shifted = exponent + 1.0
        gate = 1.0 / shifted
        activated = up * gate
        return x + self.down(activated)


class Copying(Block):
    """The same layer, its activations transposed and copied before and after each product."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = self.norm(x)
        for _ in range(3):
            normed = normed.t().contiguous().t().contiguous()
        up = functional.silu(self.up(normed))
        for _ in range(3):
            up = up.t().contiguous().t().contiguous()
        return x + self.down(up)


class InDouble(Block):
    """The same layer, its products in FP64."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__(width)
        self.up, self.down = self.up.double(), self.down.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        up = functional.silu(self.up(self.norm(x).double()))
        return x + self.down(up).float()


def _model(kind: type[Block] = Block, layers: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[kind() for _ in range(layers)])


def _decode(model: nn.Module, tokens: int = 64) -> Step:
    x = torch.randn(tokens, WIDTH)

    @torch.no_grad()
    def step(_: int) -> None:
        model(x)

    return step


def gc_pause(is_faulty: bool) -> Iterator[Step]:
    heap = [[{"index": number}] for number in range(800_000)]
    gc.collect()
    if not is_faulty:
        gc.freeze()
    old = gc.get_threshold()
    gc.set_threshold(*((400, 1, 1) if is_faulty else old))
    forward, kept = _decode(_model()), []

    def step(number: int) -> None:
        kept.append([{"request": number, "token": token} for token in range(300)])
        forward(number)

    yield step
    gc.set_threshold(*old)
    gc.unfreeze()
    heap.clear()


def scheduler_sleep(is_faulty: bool) -> Iterator[Step]:
    forward = _decode(_model())

    def schedule(number: int) -> list[int]:
        if is_faulty:
            time.sleep(0.004)
        return sorted(range(number, number + 8))

    def step(number: int) -> None:
        schedule(number)
        forward(number)

    yield step


def python_sampling(is_faulty: bool) -> Iterator[Step]:
    model, head = _model(), nn.Linear(WIDTH, 8000)
    x = torch.randn(8, WIDTH)

    def sample(logits: torch.Tensor) -> list[int]:
        if not is_faulty:
            return logits.argmax(-1).tolist()
        rows = logits.tolist()
        order = [sorted(range(len(row)), key=row.__getitem__) for row in rows]
        return [places[-1] for places in order]

    @torch.no_grad()
    def step(_: int) -> None:
        sample(head(model(x)))

    yield step


def _training() -> tuple[nn.Module, Callable[[torch.Tensor], None]]:
    model = _model()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(batch: torch.Tensor) -> None:
        optimiser.zero_grad()
        model(batch).square().mean().backward()
        optimiser.step()

    return model, train


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Samples that take `delay_s` each to decode."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.delay_s:
            time.sleep(self.delay_s)
        return torch.full((WIDTH,), index / 1e5)


def data_loader(is_faulty: bool) -> Iterator[Step]:
    batches = iter(torch.utils.data.DataLoader(Samples(2e-4 if is_faulty else 0.0), batch_size=48))
    _, train = _training()

    def step(_: int) -> None:
        train(next(batches))

    yield step


def interpreter_lock(is_faulty: bool) -> Iterator[Step]:
    stop = threading.Event()

    def detokenise() -> None:
        texts: list[str] = []
        while not stop.is_set():
            texts = [str(number) + "".join(texts[:2])[:8] for number in range(2000)]

    thread = threading.Thread(target=detokenise, daemon=True)
    if is_faulty:
        thread.start()
    forward = _decode(_model(layers=6), tokens=16)
    yield forward
    stop.set()
    if is_faulty:
        thread.join()


def recompilation(is_faulty: bool) -> Iterator[Step]:
    model = torch.compile(_model(layers=1), dynamic=False)
    dynamo_config.recompile_limit = 64

    @torch.no_grad()
    def step(number: int) -> None:
        for _ in range(5):
            model(torch.ones(16 + (number if is_faulty else 0), WIDTH))

    step(0)
    yield step


def tiny_operators(is_faulty: bool) -> Iterator[Step]:
    yield _decode(_model(SmallOperators if is_faulty else Block), tokens=256)


def layout_copies(is_faulty: bool) -> Iterator[Step]:
    yield _decode(_model(Copying if is_faulty else Block), tokens=256)


def wrong_precision(is_faulty: bool) -> Iterator[Step]:
    yield _decode(_model(InDouble if is_faulty else Block), tokens=256)


def warm_up(is_faulty: bool) -> Iterator[Step]:
    tables: dict[int, torch.Tensor] = {}
    forward = _decode(_model())

    def step(number: int) -> None:
        if number < 2 and is_faulty:
            for part in range(4):
                tables[part] = torch.randn(1200, 1200).matmul(torch.randn(1200, 1200))
        forward(number)

    yield step


PROGRAMS: dict[str, Callable[[bool], Iterator[Step]]] = {
    "gc-pause": gc_pause,
    "scheduler-sleep": scheduler_sleep,
    "python-sampling": python_sampling,
    "data-loader": data_loader,
    "interpreter-lock": interpreter_lock,
    "recompilation": recompilation,
    "tiny-operators": tiny_operators,
    "layout-copies": layout_copies,
    "wrong-precision": wrong_precision,
    "warm-up": warm_up,
}
"""Programs of one process, by twin."""
