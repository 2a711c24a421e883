"""Events whose argument names are data: counter samples and ranges of hardware counters."""

from __future__ import annotations

from tokenpath.ingest.kineto.categories import PROFILER_RANGE_CODE, Sort
from tokenpath.ingest.kineto.columns import NULL, Col, Flag
from tokenpath.ingest.kineto.sorting import Sorter
from tokenpath.ingest.kineto.texts import Texts


def keep_special(event: dict[str, object], row: list[int], texts: Texts, sorter: Sorter) -> bool:
    """Keep the samples of a counter or profiler range; False when the event is neither."""
    is_counter = row[Col.PHASE] == ord("C")
    is_range = row[Col.PHASE] == ord("X") and row[Col.CATEGORY] == PROFILER_RANGE_CODE
    if not is_counter and not is_range:
        return False
    sorter.num_events += 1
    offset = row[Col.OFFSET]
    start, dur = row[Col.TS], 0 if is_counter else row[Col.DUR]
    if row[Col.FLAGS] & (Flag.TS_RANGE | Flag.DUR_RANGE):
        reason = "timestamp out of range"
    elif start == NULL:
        reason = "missing timestamp"
    elif dur == NULL or dur < 0:
        reason = "missing duration" if dur == NULL else "negative duration"
    elif start + dur >= 2**63:
        reason = "timestamp out of range"
    else:
        reason = _keep_samples(event, row, start + dur, texts, sorter)
    if reason:
        sorter.losses.add(reason, offset=offset)
    return True


def _keep_samples(
    event: dict[str, object], row: list[int], end: int, texts: Texts, sorter: Sorter
) -> str:
    args = event.get("args")
    sort = Sort.COUNTER if row[Col.PHASE] == ord("C") else Sort.PROFILER_RANGE
    name = row[Col.NAME] if row[Col.NAME] != NULL else texts.code("")
    samples = []
    for key, value in args.items() if isinstance(args, dict) else ():
        if type(value) is int or isinstance(value, str):
            try:
                number = float(value)
            except (ValueError, OverflowError):
                continue
            samples.append((int(sort), row[Col.TS], end, name, texts.code(key), number))
    if not samples:
        return "counter without a number"
    sorter.counters.extend(samples)
    return ""
