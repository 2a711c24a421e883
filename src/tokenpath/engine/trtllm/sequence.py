"""A request inside the scheduler."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import TYPE_CHECKING

from tokenpath.engine.content import page_keys
from tokenpath.engine.scheduler import EngineRequest, Kind

if TYPE_CHECKING:
    from tokenpath.engine.trtllm.blocks import Block


class State(IntEnum):
    """Where a request is, in TensorRT-LLM's words."""

    CONTEXT = auto()
    """Its prompt is not computed yet."""
    GENERATION = auto()
    TO_COMPLETE = auto()
    """Its last token is being computed (overlap only)."""
    COMPLETE = auto()


class Sequence:
    """State of one request. Lengths are tokens from its start."""

    __slots__ = (
        "_keys",
        "asked",
        "blocks",
        "chunk",
        "estimated_reusable",
        "external",
        "kind",
        "kv_tokens",
        "most_blocks",
        "num_outputs",
        "pauses",
        "position",
        "prompt_len",
        "request",
        "state",
    )

    def __init__(self, request: EngineRequest, asked: int, most_blocks: int) -> None:
        self.request = request
        self.asked = asked
        """Tokens that it asks for; what it emits is `request.output_tokens`."""
        self.most_blocks = most_blocks
        """Blocks that it has at its end."""
        self._keys: list[int] | None = None
        self.num_outputs = 0
        """Tokens emitted, without those of a step whose result is not known yet."""
        self.prompt_len = request.prompt_tokens
        """Prompt, and what it had emitted when it was paused."""
        self.state = State.CONTEXT
        self.position = 0
        """Tokens of the prompt that are computed or cached."""
        self.chunk = 0
        """Tokens of the prompt to compute next."""
        self.estimated_reusable = 0
        """Tokens that it is expected to find in the cache."""
        self.external = 0
        """Tokens from the start that have KV, here or elsewhere, as it is admitted; 0: not more than cached."""
        self.kv_tokens = 0
        """Tokens that have a place in its blocks; 0 without blocks."""
        self.blocks: list[Block] = []
        self.kind = Kind.NEW
        """What it will be when it is scheduled next."""
        self.pauses = 0
        """Times that it was paused; the result of a step from before is thrown away."""

    def keys(self, block_tokens: int) -> list[int]:
        """Content key of each of its full blocks, by place."""
        if self._keys is None:
            self._keys = page_keys(self.request, block_tokens).tolist()
        return self._keys

    @property
    def is_first_chunk(self) -> bool:
        """In the context phase, with no blocks yet."""
        return self.state is State.CONTEXT and not self.blocks

    @property
    def is_generating(self) -> bool:
        """Its prompt is computed and its last token is not known."""
        return self.state is State.GENERATION or self.state is State.TO_COMPLETE

    @property
    def is_started(self) -> bool:
        """It has blocks, and may be paused."""
        return bool(self.blocks) and self.state is not State.COMPLETE

    @property
    def remaining(self) -> int:
        """Tokens of the prompt not computed."""
        return self.prompt_len - self.position

    def pause(self) -> None:
        """Start over, with what it has emitted as part of its prompt. Its blocks are gone."""
        self.prompt_len = self.request.prompt_tokens + self.num_outputs
        self.state = State.CONTEXT
        self.position = 0
        self.chunk = 0
        self.kv_tokens = 0
        self.kind = Kind.RESUMED
        self.pauses += 1
