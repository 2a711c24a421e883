"""Content of pages (blocks) as numbers to compare: equal at a place means equal tokens up to there."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tokenpath.engine.scheduler import EngineRequest, Int64s

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@lru_cache(maxsize=4096)
def private_key(index: int) -> int:
    """A number that stands for content of request `index` alone, as int64.

    SplitMix64 of the index (Steele, Lea, Flood, OOPSLA 2014): a bijection, so that two requests never
    share one, and far from the small numbers that traces use as ids.
    """
    z = (index + 1) * _GAMMA & _MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
    z ^= z >> 31
    return z - (1 << 64) if z >> 63 else z


def page_keys(request: EngineRequest, page_tokens: int) -> Int64s:
    """Key of each whole page of prompt and output, by place; compare only keys of the same place.

    A page's key is the id of the granule that holds its last token, as that id stands for everything from
    the start to the end of the granule; where there is none, the content is the request's own. Requests
    that are compared must have the same `hash_granule_tokens`.
    """
    num_pages = (request.prompt_tokens + request.output_tokens) // page_tokens
    own = np.int64(private_key(request.index))
    if not len(request.hashes):
        return np.broadcast_to(own, num_pages)
    granules = (np.arange(1, num_pages + 1) * page_tokens - 1) // request.hash_granule_tokens
    known = int(np.searchsorted(granules, len(request.hashes)))
    keys = np.full(num_pages, own, np.int64)
    keys[:known] = request.hashes[granules[:known]]
    return keys


def token_key(request: EngineRequest, token: int) -> int:
    """Key of everything up to and with one token (page of size 1), by place."""
    granule = token // request.hash_granule_tokens
    if granule < len(request.hashes):
        return int(request.hashes[granule])
    return private_key(request.index)


def common_pages(a: Int64s, b: Int64s) -> int:
    """Pages that two key sequences which start at the same place have in common from their start."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n
