"""Step latency from the user's own captures, with its error on what was left out.

Read first: `observe.py` (what a capture says of steps), `fit.py` (the fit and its error), `intervals.py`
(what that error does to the outputs of a simulation).
"""

from tokenpath.simulate.calibrate.model import (
    CalibratedStepModel,
    SourceFile,
    from_json,
    read_model,
    to_json,
)
from tokenpath.simulate.calibrate.overheads import Delay, Overheads, overheads_of
from tokenpath.simulate.calibrate.speed import RunSpeed, scale_curve, scale_parts
from tokenpath.simulate.calibrate.steps import fit_steps

__all__ = [
    "CalibratedStepModel",
    "Delay",
    "Overheads",
    "RunSpeed",
    "SourceFile",
    "fit_steps",
    "from_json",
    "overheads_of",
    "read_model",
    "scale_curve",
    "scale_parts",
    "to_json",
]
