"""The worlds and where they are: modules with `make(spec) -> Scenario` and `write(scenario, to, truth_to) -> Truth`."""

from __future__ import annotations

from collections.abc import Mapping

MODULES: Mapping[str, str] = {
    "device": "tokenpath.lab.device_world",
    "serving": "tokenpath.lab.serving.world",
}
"""Module of each world; imported when a scenario of it is asked for."""
