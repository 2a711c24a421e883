"""Step times over a capture: slow first ones, slow ones that recur, slow growth. Like is held against like."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokenpath.capture.capture import NO_ID, Capture
from tokenpath.capture.intervals import covered
from tokenpath.explain.analyses.attention_stalls import step_lengths
from tokenpath.explain.analysis import Analysis, DeviceResult

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

SLOW_RATIO = 1.5
"""A step this many times longer than the median of its batch is slow."""
MIN_STEPS = 5
"""Steps needed to know what is usual."""
MIN_LIKE = 3
"""Later steps of the same batch that are needed."""
MAX_LEADING = 1 / 3
"""Share of the steps that may be warm-up; more is another regime."""
MIN_LEAD_RATE = 5
"""So many times the rate of calls that set things up, before the first step over later on, make that time a start."""
MAX_LEAD_BUSY = 0.5
"""A device that computes for a larger share of the time before the first marked step runs steps without marks."""
MIN_RECURRING = 3
"""Slow steps that make a period."""
MIN_DRIFT_STEPS = 20
"""Steps needed to speak of drift."""
MIN_GROWTH = 0.1
"""Growth of the step time from which on it is named."""
MIN_ORDER = 0.6
"""Rank correlation of step time and position that makes growth steady."""


_SETS_UP = re.compile(
    r"ModuleLoad|LibraryLoad|ModuleGetFunction|Malloc(?!Async)|MemCreate|MemMap|BeginCapture|EndCapture|GraphInstantiate"
)
"""Calls of CUDA and HIP that a warm process hardly makes: loading code, taking device memory, capturing graphs."""


@dataclass(frozen=True)
class Steps:
    """The steps of one device in order."""

    device: int
    """Position in `analysis.devices`."""
    row: Int64s
    """Row of `step`."""
    start: Int64s
    """Start of its work on the device."""
    length: Int64s
    """The longer of the host's range and the device's span."""
    usual: Floats
    """Median length of the later steps with the same batch; NaN with too few."""
    pitch: Int64s
    """From its start to the next one's; of the last one to its end."""
    usual_pitch: Floats
    """The same of later steps of its batch."""
    lead_ns: int
    """Time of starting before the first step, from the first device work on; 0 where that is something else."""
    busy_share: Floats
    """Share of the device's span with work."""
    context: Floats
    """Summed context of the decode requests; NaN where unknown."""
    is_model: bool
    """Whether the steps say what they computed (prefill, decode)."""
    is_marked: bool
    """Whether a label marks them; those found by structure may be prompts or decode, nobody knows."""
    span_ns: int
    """From the first start to the last end."""


@dataclass(frozen=True)
class WarmUp:
    """Leading slow steps."""

    count: int
    """How many."""
    num_steps: int
    """Of how many."""
    ratio: float
    """Longest over usual."""
    usual_ns: int
    """Median length of later steps."""
    excess_ns: int
    """Their time above the usual, and what comes before them."""
    lead_ns: int
    """Of that, before the first step."""
    rows: tuple[int, ...]
    """Rows of `step`, longest first."""


@dataclass(frozen=True)
class Period:
    """Slow steps that come back."""

    every: int
    """Steps from one to the next."""
    period_ns: int
    """Time from one to the next."""
    count: int
    """How many there are."""
    num_steps: int
    """Of how many."""
    ratio: float
    """Median slow step over usual."""
    excess_ns: int
    """Their time above the usual."""
    likely: str
    """Where the time goes."""
    rows: tuple[int, ...]
    """Rows of `step`."""


@dataclass(frozen=True)
class Drift:
    """Steps of one batch that grow."""

    growth: float
    """Last tenth over first tenth, less one."""
    excess_ns: int
    """Time above that of the first tenth."""
    rows: tuple[int, ...]
    """Rows of `step`, the last ones."""


def read_steps(analysis: Analysis) -> list[Steps]:
    """The steps of every device over the whole capture; those with fewer than `MIN_STEPS` are left out."""
    capture = analysis.capture
    found = []
    for number, device in enumerate(analysis.devices):
        spans = device.spans
        if spans.num_busy < MIN_STEPS:
            continue
        host = (capture.int64("step", "end_ns") - capture.int64("step", "start_ns"))[spans.step]
        span = spans.end - spans.start
        length = np.maximum(host, span)
        busy = covered(spans.start, spans.end, device.believable.busy())
        phases, names = capture.codes("step", "phase")
        batch = _batch(capture, spans.step)
        pitch = np.diff(np.append(spans.start, spans.end.max()))
        found.append(
            Steps(
                number,
                spans.step,
                spans.start,
                length,
                _usual(batch, length),
                pitch,
                _usual(batch, pitch),
                _lead_ns(capture, device),
                busy / np.maximum(span, 1),
                step_lengths(capture).total[spans.step],
                bool((phases[spans.step] >= 0).any() and names),
                not _is_inferred(capture, spans.step),
                int(spans.end.max() - spans.start.min()),
            )
        )
    return found


def _lead_ns(capture: Capture, device: DeviceResult) -> int:
    """Time from the first device work to the first step, if the host sets things up in it and the device waits."""
    work, first = device.believable, int(device.spans.start.min())
    low, high = work.window_start_ns, int(device.spans.end.max())
    lead = first - low
    if lead <= 0 or work.within(low, first).busy().total > MAX_LEAD_BUSY * lead:
        return 0
    codes, names = capture.codes("api_call", "name")
    sets_up = np.array([_SETS_UP.search(name) is not None for name in names] or [False])
    source = capture.ids("device", "source_id")[work.device_id]
    thread = capture.ids("api_call", "thread_id")
    own = capture.ids("thread", "source_id")
    mine = (codes >= 0) & sets_up[np.maximum(codes, 0)]
    mine[thread != NO_ID] &= own[thread[thread != NO_ID]] == source
    start = capture.int64("api_call", "start_ns")[mine]
    # First steps set things up as well: the second half of the steps says what is usual.
    middle = int(np.sort(device.spans.start)[len(device.spans.start) // 2])
    early = int(((start >= low) & (start < first)).sum())
    late = int(((start >= middle) & (start < high)).sum())
    return lead if early * (high - middle) > MIN_LEAD_RATE * late * lead else 0


def _is_inferred(capture: Capture, row: Int64s) -> bool:
    how, names = capture.codes("step", "linked_by")
    return any(names[code] == "structure" for code in np.unique(how[row]).tolist() if code >= 0)


def _batch(capture: Capture, row: Int64s) -> Int64s:
    """A number that steps of nearly the same batch share: phase, prompt tokens and requests to a half power of two."""
    phase, _ = capture.codes("step", "phase")
    key = phase[row].astype(np.int64) + 1
    for column in ("num_prefill_tokens", "num_decode_requests"):
        size = np.maximum(capture.int64("step", column, 0)[row], 0)
        key = key * 128 + np.round(2 * np.log2(size + 1)).astype(np.int64)
    return key


def _usual(batch: Int64s, length: Int64s) -> Floats:
    """Median of the steps of the same batch behind the first quarter, at least `MIN_LIKE` of them."""
    usual = np.full(len(length), np.nan)
    later = np.arange(len(length)) >= len(length) // 4
    for key in np.unique(batch).tolist():
        mine = batch == key
        if (mine & later).sum() >= MIN_LIKE:
            usual[mine] = np.median(length[mine & later])
    return usual


def warm_up(steps: Steps) -> WarmUp | None:
    """The slow steps at the start of the capture with what comes before; None when the first is as long as later ones.

    Counted from start to start: what a cold engine does after its first step, before the next one, is warm-up too.
    A later step that is as late speaks for pauses in the load instead.
    """
    if not (steps.is_marked or steps.is_model):
        return None
    slow = steps.pitch > SLOW_RATIO * steps.usual_pitch
    count = int(np.argmin(slow)) if not slow.all() else len(slow)
    if count > MAX_LEADING * len(slow):
        return None
    over = np.where(np.isfinite(steps.usual_pitch), steps.pitch - steps.usual_pitch, 0.0)
    if count and over[count:].max(initial=0.0) > over[:count].max() / 2:
        # Gaps between steps recur: only the steps themselves can tell.
        return _warm_up_of(steps, steps.length, steps.usual)
    return _warm_up_of(steps, steps.pitch, steps.usual_pitch)


def _warm_up_of(steps: Steps, length: Int64s, usual: Floats) -> WarmUp | None:
    slow = length > SLOW_RATIO * usual
    count = int(np.argmin(slow)) if not slow.all() else len(slow)
    if count > MAX_LEADING * len(slow) or (count == 0 and steps.lead_ns == 0):
        return None
    typical = int(np.nanmedian(usual)) if np.isfinite(usual).any() else int(np.median(length))
    first = length[:count]
    excess = int((first - usual[:count]).sum()) + steps.lead_ns
    longest = np.argsort(-first, kind="stable")
    return WarmUp(
        count,
        len(steps.length),
        float((first / usual[:count]).max()) if count else 1.0,
        int(np.median(usual[:count])) if count else typical,
        excess,
        steps.lead_ns,
        tuple(int(steps.row[at]) for at in longest) or (int(steps.row[0]),),
    )


def period(steps: Steps) -> Period | None:
    """Slow steps at even distances; None when there are too few or they come at random."""
    if not (steps.is_marked or steps.is_model):
        return None
    slow = np.flatnonzero(steps.length > SLOW_RATIO * steps.usual)
    leading = warm_up(steps)
    slow = slow[slow >= (leading.count if leading else 0)]
    if len(slow) < MIN_RECURRING or len(slow) > len(steps.length) / 3:
        return None
    distance = np.diff(slow)
    every = int(np.median(distance))
    if every < 2 or (np.abs(distance - every) > max(1, every // 8)).any():
        return None
    others = np.ones(len(steps.length), bool)
    others[slow] = False
    idle_more = float(np.median(steps.busy_share[others]) - np.median(steps.busy_share[slow]))
    likely = (
        "the device idles in them: look at what the host does at that interval (garbage collection, "
        "logging, metrics)"
        if idle_more > 0.1
        else "the device is as busy as ever in them: more or longer kernels, or a collective that waits"
    )
    return Period(
        every,
        int(np.median(np.diff(steps.start[slow]))),
        len(slow),
        len(steps.length),
        float(np.median(steps.length[slow] / steps.usual[slow])),
        int((steps.length[slow] - steps.usual[slow]).sum()),
        likely,
        tuple(int(row) for row in steps.row[slow]),
    )


def drift(steps: Steps) -> Drift | None:
    """Steady growth of steps whose work does not grow; None where contexts grow or are unknown."""
    leading = warm_up(steps)
    first = leading.count if leading else 0
    known = np.isfinite(steps.usual)
    known[:first] = False
    at = np.flatnonzero(known)
    if len(at) < MIN_DRIFT_STEPS:
        return None
    if steps.is_model:
        context = steps.context[at]
        if not np.isfinite(context).all() or context[-1] > 1.05 * context[0]:
            return None
    ratio = steps.length[at] / steps.usual[at]
    tenth = max(2, len(at) // 10)
    before, after = float(np.median(ratio[:tenth])), float(np.median(ratio[-tenth:]))
    ranks = np.argsort(np.argsort(ratio, kind="stable"), kind="stable")
    order = float(np.corrcoef(ranks, np.arange(len(at)))[0, 1])
    if after < (1 + MIN_GROWTH) * before or order < MIN_ORDER:
        return None
    excess = (steps.length[at] - before * steps.usual[at]).clip(0).sum()
    return Drift(after / before - 1, int(excess), tuple(int(row) for row in steps.row[at][-5:]))
