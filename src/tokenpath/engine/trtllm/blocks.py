"""The KV blocks of TensorRT-LLM: free queues by priority, and the tree of blocks that can be found again.

Each block is free (in a queue) or held by one or more requests; either may be in the tree. The front of the
lowest priority's queue is taken first, and everything below it in the tree is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

from tokenpath.core.errors import InputError
from tokenpath.engine.content import token_key
from tokenpath.engine.scheduler import EngineRequest
from tokenpath.engine.trtllm.sequence import Sequence
from tokenpath.engine.trtllm.settings import DEFAULT_RETENTION_PRIORITY, TrtllmSettings

BlockKey = tuple[int, int]
"""Tokens in the block, and the key of everything up to and with its last one."""


class Block:
    """One block, and its place in the tree."""

    __slots__ = (
        "by_first",
        "children",
        "key",
        "number",
        "owner",
        "parent",
        "place",
        "priority",
        "refs",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.refs = 0
        self.priority = DEFAULT_RETENTION_PRIORITY
        self.parent: Block | None = None
        """In the tree; None if it cannot be found."""
        self.key: BlockKey = (0, 0)
        self.place = -1
        """Which block of its sequence it is."""
        self.owner: EngineRequest | None = None
        """Whose tokens it holds."""
        self.children: dict[BlockKey, Block] = {}
        self.by_first: dict[int, dict[int, Block]] = {}
        """Children by the key of their first token, then by number."""


class BlockManager:
    """All blocks of the primary pool. Blocks of requests are held in `Sequence.blocks`."""

    def __init__(self, settings: TrtllmSettings) -> None:
        self._settings = settings
        self.size = settings.tokens_per_block
        self.root = Block(-1)
        self.num_free = settings.num_blocks
        self._queues: dict[int, OrderedDict[int, Block]] = {
            DEFAULT_RETENTION_PRIORITY: OrderedDict(
                (number, Block(number)) for number in range(settings.num_blocks)
            )
        }

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.size)

    def key_of(self, request: EngineRequest, place: int, tokens: int) -> BlockKey:
        """Key of the first `tokens` tokens of a request's block."""
        return (tokens, token_key(request, place * self.size + tokens - 1))

    def cached(self, sequence: Sequence) -> tuple[int, int, BlockKey | None]:
        """Full blocks of the prompt that are in the tree; of them held and to be shared; the first missing.

        A block that ends with the prompt is never shared, as its last token is computed in any case.
        TensorRT-LLM counts it as shared all the same, and then lacks a block.
        """
        node, found, held = self.root, 0, 0
        keys = sequence.keys(self.size)
        for place in range(sequence.prompt_len // self.size):
            child = node.children.get((self.size, keys[place]))
            if child is None:
                return found, held, (place, keys[place])
            found += 1
            held += child.refs > 0 and place < (sequence.prompt_len - 1) // self.size
            node = child
        return found, held, None

    def add_sequence(self, sequence: Sequence) -> int:
        """Give a request the blocks of its prompt; tokens of it that were cached."""
        settings = self._settings
        usable = sequence.prompt_len - 1  # the last token is computed in any case
        node: Block | None = self.root if settings.enable_block_reuse else None
        matched = 0
        for place in range(self.blocks_for(sequence.prompt_len)):
            tokens = min(usable - place * self.size, self.size)
            found = (
                node.children.get(self.key_of(sequence.request, place, tokens))
                if node and tokens > 0
                else None
            )
            in_part = 0
            if found is not None and found.key[0] == self.size:
                self._claim(found, settings.context_retention_priority)
                matched += self.size
                node = found
            else:
                if node is not None and tokens > 0:
                    found, in_part = self._partial_match(
                        node, found, sequence.request, place, tokens
                    )
                matched += in_part
                found = (
                    self._own_copy(found)
                    if found is not None
                    else self._take(self._context_priority)
                )
                node = None  # nothing after it can match
            found.refs += 1
            sequence.blocks.append(found)
        sequence.kv_tokens = sequence.prompt_len
        return matched

    def add_token(self, sequence: Sequence) -> None:
        """Give a request the place of one more token."""
        if sequence.kv_tokens % self.size == 0:
            block = self._take(self._settings.decode_retention_priority)
            block.refs += 1
            sequence.blocks.append(block)
        sequence.kv_tokens += 1

    def store_context(self, sequence: Sequence) -> None:
        """Put the full blocks of a computed prompt into the tree."""
        if self._settings.enable_block_reuse:
            self._store(sequence, sequence.prompt_len // self.size * self.size)

    def remove_sequence(self, sequence: Sequence) -> None:
        """Take a request's blocks back; its computed tokens, but for the last, stay in the tree."""
        if self._settings.enable_block_reuse:
            known = sequence.request.prompt_tokens + sequence.num_outputs - 1
            computed = sequence.kv_tokens if sequence.is_generating else sequence.position
            self._store(sequence, min(known, computed))
        for block in reversed(sequence.blocks):
            block.refs -= 1
            if block.refs == 0:
                self._release(block)
        sequence.blocks = []

    @property
    def _context_priority(self) -> int:
        chosen = self._settings.context_retention_priority
        return DEFAULT_RETENTION_PRIORITY if chosen is None else chosen

    def _partial_match(
        self, node: Block, exact: Block | None, request: EngineRequest, place: int, tokens: int
    ) -> tuple[Block | None, int]:
        """The child of `node` that begins with most of the tokens, and how many.

        Where several have as many, TensorRT-LLM takes any of them; here it is the lowest number.
        """
        if exact is not None:  # equal, but not full: it will be written to
            return exact, tokens
        if not self._settings.enable_partial_reuse:
            return None, 0
        best, most = None, 0
        first = token_key(request, place * self.size)
        for _, child in sorted(node.by_first.get(first, {}).items()):
            if not self._settings.copy_on_partial_reuse and (child.refs or child.children):
                continue
            common = self._common_tokens(child, request, min(tokens, child.key[0]))
            if common > most:
                best, most = child, common
        return best, most

    def _common_tokens(self, block: Block, request: EngineRequest, limit: int) -> int:
        if block.owner is None:
            return 0
        start = block.place * self.size
        step = min(request.hash_granule_tokens, block.owner.hash_granule_tokens)
        token = start
        while token < start + limit and token_key(request, token) == token_key(block.owner, token):
            token += step - token % step
        return min(token - start, limit)

    def _own_copy(self, found: Block) -> Block:
        """A block with the tokens of `found` that the request may write to."""
        if found.refs or found.children:
            return self._take(found.priority)
        self._detach(found)
        self._claim(found, self._settings.context_retention_priority)
        return found

    def _store(self, sequence: Sequence, num_tokens: int) -> None:
        node, known, request, keys = self.root, True, sequence.request, sequence.keys(self.size)
        for place in range(self.blocks_for(num_tokens)):
            tokens = min(num_tokens - place * self.size, self.size)
            full = tokens == self.size
            key = (tokens, keys[place]) if full else self.key_of(request, place, tokens)
            child = node.children.get(key) if known else None
            if child is None:
                known = False
                child = sequence.blocks[place]
                self._detach(child)
                self._attach(node, child, key, request, place)
            node = child

    def _attach(
        self, node: Block, child: Block, key: BlockKey, owner: EngineRequest, place: int
    ) -> None:
        child.parent, child.key, child.owner, child.place = node, key, owner, place
        node.children[key] = child
        first = token_key(owner, place * self.size)
        node.by_first.setdefault(first, {})[child.number] = child

    def _detach(self, block: Block) -> None:
        parent, owner = block.parent, block.owner
        if parent is None or owner is None:
            return
        block.parent = None
        del parent.children[block.key]
        first = token_key(owner, block.place * self.size)
        del parent.by_first[first][block.number]
        if not parent.by_first[first]:
            del parent.by_first[first]

    def _forget(self, block: Block) -> None:
        """Take a block and all below it out of the tree."""
        stack, below = [block], []
        while stack:
            step = stack.pop()
            below.append(step)
            stack.extend(step.children.values())
        for step in reversed(below):
            self._detach(step)

    def _take(self, priority: int) -> Block:
        """The free block that is lost first, with nothing in it."""
        if self.num_free == 0:
            raise InputError(
                "no free block is left for a request that was scheduled: TensorRT-LLM stops here",
                allowed=f"{self._settings.num_blocks} blocks of {self.size} tokens in all",
                next_step="raise num_blocks, or use guaranteed_no_evict",
            )
        level = min(level for level, queue in self._queues.items() if queue)
        _, block = self._queues[level].popitem(last=False)
        self.num_free -= 1
        self._forget(block)
        block.priority = priority
        return block

    def _claim(self, block: Block, priority: int | None) -> None:
        """Take this very block, if it is free."""
        if block.refs == 0:
            del self._queues[block.priority][block.number]
            self.num_free -= 1
        if priority is not None:
            block.priority = priority

    def _release(self, block: Block) -> None:
        self._queues.setdefault(block.priority, OrderedDict())[block.number] = block
        self.num_free += 1
