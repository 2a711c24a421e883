"""Which rules a release of vLLM has: read from the sources of the releases named here."""

from __future__ import annotations

from dataclasses import dataclass

from tokenpath.core.errors import InputError
from tokenpath.engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class VersionRules:
    """What differs between releases, beyond settings."""

    is_free_split: bool
    """Freed blocks without content go to the front of the free queue, not to its end."""
    is_long_prefill_alone_uncapped: bool
    """`long_prefill_token_threshold` does not bind a request that is alone."""


def parse_version(version: str) -> tuple[int, int]:
    """Major and minor number; InputError if the text has none."""
    try:
        major, minor = (int(part) for part in version.split(".")[:2])
    except ValueError:
        raise InputError(
            f"version is {version!r}",
            where="engine settings",
            allowed="a release of vLLM, such as 0.32.0",
            next_step="the nearest value that works is version=0.32.0",
        ) from None
    return major, minor


def rules_of(config: EngineConfig) -> VersionRules:
    """The rules of the release that a configuration names."""
    version = parse_version(config.version)
    return VersionRules(
        is_free_split=version >= (0, 23),
        is_long_prefill_alone_uncapped=version >= (0, 31),
    )
