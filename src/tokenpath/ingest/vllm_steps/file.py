"""One step log from its bytes to a capture."""

from __future__ import annotations

from pathlib import Path

from tokenpath.capture.capture import Capture
from tokenpath.core.errors import DamagedInput
from tokenpath.ingest import fields
from tokenpath.ingest.builder import CaptureBuilder
from tokenpath.ingest.json_lines import blocks, parse
from tokenpath.ingest.packed import open_unpacked
from tokenpath.ingest.reader import Options, Reader
from tokenpath.ingest.run_list import place_on_epoch
from tokenpath.ingest.vllm_steps.fast import FastReader
from tokenpath.ingest.vllm_steps.record import Ids, Rows
from tokenpath.ingest.vllm_steps.slow import read_block as read_slow
from tokenpath.ingest.vllm_steps.tables import write_tables

_MAX_SETTINGS = 100
_FAST_FROM_BYTES = 2**22
"""In smaller files reading JSON takes less time than loading compiled code."""
_BYTES_A_LINE = 100
_USUAL_RATIO = 10
"""How much smaller packed logs are."""


def read_file(reader: Reader, path: Path, options: Options) -> Capture:
    """The capture of one log. DamagedInput when no line of it is a record."""
    builder = CaptureBuilder(reader, path, options)
    unpacked = open_unpacked(path, max_bytes=options.max_bytes, progress=options.progress)
    ids, parts = Ids(), list[Rows]()
    config: dict[str, object] = {}
    num_lines = 0
    size = unpacked.num_stored_bytes * (1 if unpacked.container == "plain" else _USUAL_RATIO)
    is_fast = options.scanner == "fast" or (options.scanner == "auto" and size >= _FAST_FROM_BYTES)
    fast = FastReader(ids, builder.losses, size // _BYTES_A_LINE) if is_fast else None
    for block in blocks(unpacked, builder.losses):
        if not config:
            config = _config(block.data)
        if fast is None:
            parts.append(read_slow(block, num_lines, ids, builder.losses))
        else:
            parts += fast.read_block(block, num_lines)
        num_lines += block.data.count(b"\n")
        num_lines += not block.data.endswith(b"\n")
    if not config and not any(len(part.step_line) or part.adds.line for part in parts):
        raise DamagedInput("no line is a record of a step log", where=str(path))
    builder.num_events = num_lines
    _describe(builder, config)
    t0_ns = place_on_epoch(builder, path, fields.text(config.get("run")))
    num_blocks = fields.count(config.get("num_blocks"))
    rank = fields.count(config.get("data_parallel_rank"))
    write_tables(
        builder,
        parts,
        list(ids.numbers),
        t0_ns=t0_ns,
        num_blocks=num_blocks if num_blocks and num_blocks < 2**40 else None,
        engine_id=rank if rank is not None and rank < 2**31 else None,
        num_lines=num_lines,
    )
    return builder.finish()


def _config(data: bytes) -> dict[str, object]:
    """The configuration, which stands on the first line."""
    record = parse(data[: data.find(b"\n") + 1 or len(data)])
    return record if isinstance(record, dict) and record.get("ev") == "config" else {}


def _describe(builder: CaptureBuilder, config: dict[str, object]) -> None:
    version = fields.text(config.get("vllm"))
    builder.origin.profiler = None if version is None else f"tokenpath recorder, vLLM {version}"
    for name, value in list(config.items())[:_MAX_SETTINGS]:
        if isinstance(value, list):
            value = ", ".join(item for item in map(fields.text, value) if item)
        if name != "ev" and isinstance(value, str | int | float):
            builder.setting(fields.text(name) or "", fields.text(value) or value)
