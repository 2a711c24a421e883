"""What every load generator's numbers need to be read with, said in one wording."""

from __future__ import annotations

from tokenpath.ingest.builder import CaptureBuilder


def note_common(
    builder: CaptureBuilder,
    *,
    num_failed: int,
    concurrency: object,
    num_requests: int,
    has_ids: bool,
) -> None:
    """Notes on failures, the client's loop, missing requests and missing ids, each where it applies.

    `concurrency` is the bound on requests under way, None for a client that sends on a schedule.
    """
    if num_failed:
        builder.note(
            "failed-requests-excluded",
            f"{num_failed:,} requests failed: the file's percentiles are those of the others, "
            "so a slow request that timed out is in none of them",
        )
    if concurrency is not None:
        note_closed_loop(builder, concurrency)
    if not num_requests:
        builder.note(
            "aggregate-only",
            "the file states aggregates and no request: percentiles can neither be recomputed nor "
            "joined with other sources",
        )
    elif not has_ids:
        builder.note(
            "no-request-ids",
            "the file has no request ids: `#7` is the eighth request of the file, and a join with the "
            "engine goes by time and size",
        )


def note_closed_loop(builder: CaptureBuilder, concurrency: object) -> None:
    """Say that a bounded client sends less while the engine is slow."""
    builder.note(
        "closed-loop-client",
        f"the client keeps at most {concurrency} requests under way: while the engine is slow it sends "
        "fewer, so waiting that users would have is in no latency (coordinated omission)",
    )


def note_chunks(builder: CaptureBuilder, tool: str) -> None:
    """Say that a gap is one between stream chunks."""
    builder.note(
        "itl-per-chunk",
        f"{tool} measures the gap between stream chunks: a chunk of several tokens is one gap, so "
        "inter-token latency is too long by tokens a chunk",
    )


def note_request_mean(builder: CaptureBuilder, tool: str, how: str) -> None:
    """Say that what is called inter-token latency is a mean of each request."""
    builder.note(
        "itl-is-request-mean",
        f"what {tool} calls inter-token latency is the mean of each request ({how}): it is kept as "
        "`latency.tpot`, its percentiles hide single long gaps",
    )


def note_first_token(builder: CaptureBuilder, name: str, formula: str) -> None:
    """Say that a time per token counts the first one."""
    builder.note(
        "tpot-includes-first-token",
        f"`{name}` is {formula}: the wait for the first token is in it, so it is no TPOT and is kept "
        "under another name",
    )


def note_warm_up(builder: CaptureBuilder, why: str) -> None:
    """Say that cold requests may be among the measured ones."""
    builder.note(
        "warm-up-included",
        f"{why}: compilation, graph capture and empty caches of the first requests are in the figures",
    )


def note_tokeniser(builder: CaptureBuilder, why: str) -> None:
    """Say that tokens were counted by the client."""
    builder.note(
        "tokens-retokenised",
        f"{why}: token counts, and all per token, differ from the engine's",
    )
