"""Random workloads for the differential harness: who arrives when, how long, and what they share.

Standard library only, so that every recorder runs it in its own environment. One seed, one workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

POSITIONS = 1 << 20
"""Ids of one segment are `segment * POSITIONS + place of the granule`: no prompt has so many granules."""


@dataclass(frozen=True)
class Segment:
    """A run of granules with the same content for all who have it; it follows one parent path only."""

    number: int
    """Its number."""
    granules: int
    """How many granules of it the request has, from its start."""


@dataclass(frozen=True)
class WorkRequest:
    """A request of a workload."""

    index: int
    """Its number, from 0 on, in order of arrival."""
    arrival_ns: int
    """When it reaches the engine."""
    prompt_tokens: int
    """Tokens of the prompt."""
    output_tokens: int
    """Tokens after which it ends."""
    priority: int = 0
    """Lower is served first, where the policy asks for it."""
    segments: tuple[Segment, ...] = ()
    """Content from the start on; what is not covered is shared with nobody."""

    def granule_ids(self) -> list[int]:
        """One id a granule: equal ids at a place mean equal tokens from the start to the granule's end."""
        ids: list[int] = []
        for segment in self.segments:
            ids += [
                segment.number * POSITIONS + len(ids) + place for place in range(segment.granules)
            ]
        return ids

    def token_at(self, position: int, granule_tokens: int, ids: list[int]) -> int:
        """Token at a position, the same for all requests with the same content up to there."""
        granule = position // granule_tokens
        if granule < len(ids):
            return ids[granule] * 64 + position % granule_tokens + 1
        return (1 << 50) + self.index * POSITIONS + position


@dataclass(frozen=True)
class Shape:
    """What a workload is drawn from."""

    requests: int
    """Number of requests."""
    granule_tokens: int
    """Tokens of one granule of content."""
    longest_prompt_tokens: int
    """No prompt is longer."""
    longest_sequence_tokens: int
    """No prompt and output together are longer (a request may still be cut by the model's length)."""
    mean_gap_ns: int
    """Mean time between arrivals; some arrive together."""
    mean_output_tokens: int
    """Mean length of the outputs."""
    sharing: float
    """Part of the requests that share a prefix with others, 0 to 1."""
    priorities: int = 1
    """Number of levels of priority."""
    steps_of: list[int] = field(default_factory=lambda: [1])
    """Prompt lengths are rounded to a multiple of one of these, drawn per request."""


def requests_of(shape: Shape, random: Random) -> Iterator[WorkRequest]:
    """Draw a workload: unique prompts, shared prefixes, whole repeats and follow-up turns."""
    granule = shape.granule_tokens
    roots = [
        Segment(1_000_000 + root, random.randint(1, max(1, shape.longest_prompt_tokens // granule)))
        for root in range(random.randint(1, 4))
    ]
    past: list[WorkRequest] = []
    now = 0
    for index in range(shape.requests):
        if index and random.random() < 0.7:
            now += (int(random.expovariate(1.0 / shape.mean_gap_ns)) // 100_000 + 1) * 100_000
        path: list[Segment] = []
        length = random.randint(1, max(1, shape.longest_prompt_tokens // random.choice([1, 3, 6])))
        draw = random.random()
        if draw < shape.sharing * 0.5:
            path = [_cut(random.choice(roots), random)]
        elif draw < shape.sharing and past:
            earlier = random.choice(past[-8:])
            path = list(earlier.segments)
            if random.random() < 0.4:  # the very same prompt again
                length = earlier.prompt_tokens
            elif path and random.random() < 0.5:
                path[-1] = _cut(path[-1], random)
        step = random.choice(shape.steps_of)
        known = sum(segment.granules for segment in path) * granule
        if random.random() < 0.5:
            length = known + random.randint(0, max(1, shape.longest_prompt_tokens // 3))
        length = max(1, length // step * step)
        length = min(length, shape.longest_prompt_tokens)
        output = max(1, min(int(random.expovariate(1.0 / shape.mean_output_tokens)) + 1, 4096))
        output = min(output, max(1, shape.longest_sequence_tokens - length))
        whole = (length + output) // granule
        path = _fit(path, whole)
        covered = sum(segment.granules for segment in path)
        if whole > covered and shape.sharing > 0:
            path.append(Segment(index, whole - covered))
        request = WorkRequest(
            index,
            now,
            length,
            output,
            random.randrange(shape.priorities),
            tuple(path),
        )
        past.append(request)
        yield request


def _cut(segment: Segment, random: Random) -> Segment:
    return Segment(segment.number, random.randint(1, segment.granules))


def _fit(path: list[Segment], granules: int) -> list[Segment]:
    """Cut a path to a number of granules."""
    kept: list[Segment] = []
    for segment in path:
        take = min(segment.granules, granules)
        if take > 0:
            kept.append(Segment(segment.number, take))
        granules -= take
    return kept
