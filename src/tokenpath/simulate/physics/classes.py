"""Which measured runs speak for a deployment: its class, and the release of its engine within it.

A class is engine, part, model and storage; layouts, batch sizes and lengths are what physics is for. Scales
measured for a class are shrunk logarithms; a release adds its own, smaller, on top.
"""

from __future__ import annotations

import re

from tokenpath.simulate.physics.deployment import Deployment


def class_of(at: Deployment) -> str:
    """Engine, part, layers and storage: `vllm/h200-sxm-141gb/gpt_oss-117b/mxfp4_experts`."""
    shape = at.model.shape
    size = shape.total_params / 1e9
    billions = f"{size:.0f}b" if size >= 3 else f"{size:.1f}b"
    kind = f"{shape.model_type}-{billions}"
    # Block scales or not: one kernel family and the same bytes.
    scheme = at.model.scheme.name.removesuffix("_block")
    return f"{at.engine}/{at.hardware.key}/{kind}/{scheme}"


def release_of(at: Deployment) -> str | None:
    """The class with the engine's major and minor version; None: version not said or not a number."""
    minor = _minor(at)
    return None if minor is None else f"{class_of(at)}/{minor}"


MEASURED = {"vllm": (10, 12, 15, 16, 17, 18, 19)}
"""Minor versions, of major 0, that runs were measured of."""
USUAL = {"vllm": "vllm-0.19"}
"""The newest release measured: what a deployment that names none is taken to run."""


def engine_release(at: Deployment) -> str | None:
    """Engine and release whatever the model: `vllm-0.15`.

    Without a version: the newest; with one that was not measured: the nearest that was.
    """
    if at.engine_version is None:
        return USUAL.get(at.engine)
    minor = _minor(at)
    if minor is None:
        return None
    measured = MEASURED.get(at.engine)
    if measured and minor.startswith("0."):
        asked = int(minor.removeprefix("0."))
        minor = f"0.{min(measured, key=lambda m: (abs(m - asked), -m))}"
    return f"{at.engine}-{minor}"


def keys_of(at: Deployment) -> tuple[str, ...]:
    """Class, and release where it is known."""
    release = release_of(at)
    return (class_of(at),) if release is None else (class_of(at), release)


def _minor(at: Deployment) -> str | None:
    found = re.match(r"v?(\d+)\.(\d+)", at.engine_version or "")
    return f"{found[1]}.{found[2]}" if found else None
