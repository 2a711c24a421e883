"""What-ifs as a person writes them: `scale family=gemm 0.5`, `remove sync`, `gpu h200-sxm-141gb`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tokenpath.capture.capture import Capture
from tokenpath.capture.intervals import Int64s
from tokenpath.core.errors import UsageError
from tokenpath.core.hardware import Hardware, find_candidates, load_catalogue
from tokenpath.replay import what_ifs
from tokenpath.replay.change import WhatIf
from tokenpath.replay.replay import Replay

ALLOWED = (
    "scale TARGET FACTOR",
    "remove TARGET",
    "hide communication",
    "hide copies",
    "remove sync",
    "remove blocking-copies",
    "remove frame=REGEX",
    "remove op=REGEX",
    "remove call=REGEX",
    "graphs",
    "fuse elementwise",
    "balance ranks",
    "gpu NAME",
)
"""The forms; TARGET is `family=NAME`, `name=REGEX`, `communication` or `copies`."""

Build = Callable[[Capture, Replay], Sequence[WhatIf]]
_HOST_TABLES = {"frame": "frame", "op": "op", "call": "api_call"}
_KINDS = {"communication": "communication", "copies": "memcpy"}


@dataclass(frozen=True)
class Spoken:
    """A what-if that was asked for."""

    text: str
    """As it was written."""
    build: Build
    """Makes it for a capture: the likely one first, then what bounds it. UsageError where the capture holds
    nothing of the kind."""


def parse_what_if(text: str) -> Spoken:
    """Read one what-if; UsageError for one that has none of the forms ALLOWED."""
    # A regular expression may hold blanks: only the first word and a last number are taken off.
    verb, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    build = _build_of(verb.lower(), rest, text)
    return Spoken(text.strip(), build)


def _build_of(verb: str, rest: str, text: str) -> Build:
    if verb == "graphs" and not rest:
        return lambda capture, replay: [what_ifs.device_graphs(capture, replay.graph, text)]
    if verb == "fuse" and rest == "elementwise":
        return lambda capture, replay: [what_ifs.fuse_elementwise(capture, replay.graph, text)]
    if verb == "balance" and rest == "ranks":
        return lambda _, replay: [_balanced(replay, text)]
    if verb == "hide" and rest in _KINDS:
        return lambda capture, _: [_hidden(capture, text, _KINDS[rest])]
    if verb == "gpu" and rest:
        other = _hardware(rest, text)
        return lambda capture, _: _on_gpu(capture, text, other)
    if verb == "scale":
        target, _, factor = rest.rpartition(" ")
        rows = _kernel_rows(target.strip(), text)
        value = _factor(factor, text)
        return lambda capture, _: [what_ifs.scale_kernels(text, rows(capture), value)]
    if verb == "remove":
        return _removal(rest, text)
    raise _unknown(text)


def _removal(rest: str, text: str) -> Build:
    if rest == "sync":
        return lambda _, replay: [what_ifs.without_waits(replay.graph, text)]
    if rest == "blocking-copies":
        return lambda _, replay: [what_ifs.without_blocking_copies(replay.graph, text)]
    key, found, pattern = rest.partition("=")
    if found and key in _HOST_TABLES and pattern:
        matches = _matcher(pattern, text)

        def host_time(capture: Capture, _: Replay) -> Sequence[WhatIf]:
            found = what_ifs.host_time_where(capture, _HOST_TABLES[key], text, matches)
            if len(found.host[0].thread) == 0:
                raise UsageError(f"no {key} of the capture matches", where=f"--what-if '{text}'")
            return [found]

        return host_time
    rows = _kernel_rows(rest, text)
    return lambda capture, _: [what_ifs.scale_kernels(text, rows(capture), 0.0)]


def _kernel_rows(target: str, text: str) -> Callable[[Capture], Int64s]:
    if target in _KINDS:
        column, matches = "kind", _is(_KINDS[target])
    else:
        key, found, value = target.partition("=")
        if not found or key not in ("family", "name") or not value:
            raise _unknown(text)
        column, matches = key, _is(value) if key == "family" else _matcher(value, text)

    def rows(capture: Capture) -> Int64s:
        found = what_ifs.kernels_where(capture, column, matches)
        if len(found) == 0:
            codes, names = capture.codes("kernel", "family")
            used = sorted(names[code] for code in np.unique(codes[codes >= 0]).tolist())
            raise UsageError(
                "no kernel of the capture is meant",
                where=f"--what-if '{text}'",
                allowed="families here: " + ", ".join(used),
            )
        return found

    return rows


def _is(value: str) -> Callable[[str], bool]:
    return lambda name: name == value


def _matcher(pattern: str, text: str) -> Callable[[str], bool]:
    try:
        return what_ifs.name_matcher(pattern)
    except re.error as error:
        raise UsageError(f"no regular expression: {error}", where=f"--what-if '{text}'") from None


def _factor(word: str, text: str) -> float:
    try:
        value = float(word)
    except ValueError:
        raise _unknown(text) from None
    if not 0 <= value < math.inf:
        raise UsageError(
            f"a factor of {word}",
            where=f"--what-if '{text}'",
            allowed="a number from 0 (gone) over 1 (as measured)",
        )
    return value


def _unknown(text: str) -> UsageError:
    return UsageError(
        "no such what-if",
        where=f"--what-if '{text}'",
        allowed="; ".join(ALLOWED) + "; TARGET: family=NAME, name=REGEX, communication, copies",
    )


def _hardware(name: str, text: str) -> Hardware:
    catalogue = load_catalogue()
    if name in catalogue:
        return catalogue[name]
    found = find_candidates(name)
    if len(found) == 1:
        return found[0]
    raise UsageError(
        "the name fits several devices" if found else "no such device",
        where=f"--what-if '{text}'",
        allowed=", ".join(hardware.key for hardware in found) or ", ".join(catalogue),
    )


def _on_gpu(capture: Capture, text: str, other: Hardware) -> Sequence[WhatIf]:
    keys = {key for key in capture["device"]["hardware"].to_pylist() if key is not None}
    if len(keys) != 1:
        raise UsageError(
            "the devices of the capture are of several kinds"
            if keys
            else "the device is not known",
            where=f"--what-if '{text}'",
            next_step="see `tokenpath inspect FILE`",
        )
    measured = load_catalogue()[keys.pop()]
    return [
        what_ifs.faster_gpu(capture, text, measured, other, bound)
        for bound in ("likely", "memory", "compute")
    ]


def _balanced(replay: Replay, text: str) -> WhatIf:
    if len(replay.graph.collectives) == 0:
        raise UsageError(
            "no collective of several ranks is matched",
            where=f"--what-if '{text}'",
            next_step="give the traces of all ranks",
        )
    return what_ifs.balanced_ranks(text)


def _hidden(capture: Capture, text: str, kind: str) -> WhatIf:
    found = what_ifs.hide_kernels(text, capture, kind)
    if len(found.hidden[0]) == 0:
        raise UsageError(f"the capture holds no {kind}", where=f"--what-if '{text}'")
    return found
