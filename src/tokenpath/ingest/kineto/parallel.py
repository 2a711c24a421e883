"""Two threads on one mapped file, by a guess that is checked.

The second thread begins at a place in the middle that looks like the begin of an event. Its rows count
only if the first thread arrives at exactly that place, expecting an event; else they are thrown away and
the first thread reads on alone. So the result is that of one thread, whatever the file holds.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from tokenpath.ingest.kineto.fast import FastScanner
from tokenpath.ingest.kineto.fast_texts import FastTexts
from tokenpath.ingest.kineto.sorting import TEXT_FIELDS, Sorter, remap_rows
from tokenpath.ingest.kineto.window import Window

_EVENT = re.compile(
    rb'\}[ \t\r\n]*,[ \t\r\n]*(?P<event>\{[ \t\r\n]*"(?:ph|name|cat|pid|args|attr)"[ \t\r\n]*:)'
)
_SEARCHED_BYTES = 2**22


class ParallelScanner:
    """Reads the list of events of a mapped file with two compiled scanners."""

    def __init__(self, texts: FastTexts, sorter: Sorter) -> None:
        self._first = FastScanner(texts, sorter)
        self.num_discarded = 0
        """How often the guess was wrong."""

    def scan(self, window: Window, start: int) -> tuple[int, bool]:
        """Read events from the byte after `[` on; (offset after them, whether `]` was reached)."""
        guess = _guess_event(window, start)
        if guess is None:
            return self._first.scan(window, start)
        second, second_at = FastScanner(FastTexts(), Sorter()), [guess]
        others = window.twin(lambda at: second_at.__setitem__(0, at))
        own = window.twin(lambda at: window.report(at + second_at[0] - guess))
        with ThreadPoolExecutor(1, "tokenpath-scan") as pool:
            future = pool.submit(second.scan, others, guess)
            at, closed = self._first.scan(own, start, stop=guess)
            if at == guess and not closed:
                at, closed = future.result()
                _merge(self._first, second)
                return at, closed
        self.num_discarded += 1
        return (at, closed) if closed else self._first.scan(window, at)


def _guess_event(window: Window, start: int) -> int | None:
    middle = start + (window.end - start) // 2
    first = middle - window.base
    match = _EVENT.search(window.view, first, first + _SEARCHED_BYTES)
    return None if match is None else window.base + match.start("event")


def _merge(first: FastScanner, second: FastScanner) -> None:
    """Append the rows, counts and texts of the second half to those of the first."""
    codes, numbers = first.texts.adopt(second.texts)
    one, two = first.sorter, second.sorter
    for name, store in two.stores.items():
        store.remap(TEXT_FIELDS[name], codes)
        if any(field.name == "pair" for field in store.fields):
            store.remap(("pair",), numbers)
    for owner in ("op", "kernel"):
        two.stores[f"{owner}_collective"].shift("row", one.stores[owner].num_rows)
    for name, store in two.stores.items():
        one.stores[name].extend(store)
    for rows in two.begin_end:
        remap_rows(rows, codes, numbers)
    one.begin_end += two.begin_end
    one.counters += [
        (sort, start, end, int(codes[name]), int(codes[key]), value)
        for sort, start, end, name, key, value in two.counters
    ]
    one.losses.merge(two.losses)
    one.num_events += two.num_events
