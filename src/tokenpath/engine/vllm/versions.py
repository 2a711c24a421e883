"""Which rules a release of vLLM has: read from the sources of 0.10.2 to 0.33.0, release by release."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig

OLDEST, NEWEST = (0, 10), (0, 33)
"""Releases whose sources were read. A later one gets the newest rules known."""


@dataclass(frozen=True, slots=True)
class VersionRules:
    """What differs between releases beyond settings; each with the first release that has it."""

    is_unchunked_skipped: bool
    """Before 0.12: without chunked prefill, a prompt that does not fit the budget is passed, and does not
    end admission."""
    is_async_guarded: bool
    """0.12: async scheduling decides no step for a request whose last token is under way."""
    has_full_isl: bool
    """0.19: `scheduler_reserve_full_isl` exists."""
    is_free_split: bool
    """0.23: freed blocks without content go to the front of the free queue, not to its end."""
    is_any_victim_counted: bool
    """0.28, priority: a victim ahead in the running list moves the place where scheduling goes on, whether
    it had tokens in this step or not. Before: only if it had, so that the next request was passed over."""
    is_long_prefill_alone_uncapped: bool
    """0.31: `long_prefill_token_threshold` does not bind a request that is alone."""
    is_self_preemption_passed: bool
    """0.33, priority: a request that had to preempt itself does not end the step for those behind it."""


_SETTINGS_SINCE = (
    ("watermark", 0.0, (0, 24)),
    ("long_prefill_token_threshold_adaptive", False, (0, 31)),
    ("max_num_active_seqs", None, (0, 31)),
)
"""Settings, the value that means "not set", and the first release that knows them."""


def parse_version(version: str) -> tuple[int, int]:
    """Major and minor number; InputError if the text has none."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        raise _no_such(version, "a release of vLLM, such as 0.32.0", "0.32.0") from None
    return major, minor


def rules_of(config: EngineConfig) -> VersionRules:
    """The rules of the release that a configuration names; InputError if it cannot be configured so."""
    version = parse_version(config.version)
    if version < OLDEST:
        raise _no_such(config.version, "0.10 or later", "0.10.2")
    if config.policy == "priority" and version < (0, 12):
        # It kept tokens of preempted requests in the step; nothing follows from such a step.
        raise _no_such(config.version, "0.12 or later for policy=priority", "0.12.0")
    for name, unset, since in _SETTINGS_SINCE:
        if getattr(config, name) != unset and version < since:
            first = f"{since[0]}.{since[1]}.0"
            raise _no_such(config.version, f"{first} or later for {name}", first)
    return VersionRules(
        is_unchunked_skipped=version < (0, 12),
        is_async_guarded=version >= (0, 12),
        has_full_isl=version >= (0, 19),
        is_free_split=version >= (0, 23),
        is_any_victim_counted=version >= (0, 28),
        is_long_prefill_alone_uncapped=version >= (0, 31),
        is_self_preemption_passed=version >= (0, 33),
    )


def _no_such(version: str, allowed: str, nearest: str) -> InputError:
    return InputError(
        f"version is {version!r}",
        where="engine settings",
        allowed=allowed,
        next_step=f"the nearest value that works is version={nearest}",
    )
