"""One file a verb: what the command line, the server and Python users call.

from tokenpath.api import explain
result = explain(["run/rank0.json.gz"])
print(result.report.answer)
"""

from tokenpath.api.calibrate import Calibrated, calibrate
from tokenpath.api.convert import convert
from tokenpath.api.explain import Explained, explain
from tokenpath.api.inspect import inspect
from tokenpath.api.load import load
from tokenpath.api.thread import Threaded, thread
from tokenpath.api.workload import (
    DescribedWorkload,
    FittedWorkload,
    describe_workload,
    fit_workload,
    workload,
)
from tokenpath.explain.pages import about, codes
from tokenpath.explain.request import WindowRequest

__all__ = [
    "Calibrated",
    "DescribedWorkload",
    "Explained",
    "FittedWorkload",
    "Threaded",
    "WindowRequest",
    "about",
    "calibrate",
    "codes",
    "convert",
    "describe_workload",
    "explain",
    "fit_workload",
    "inspect",
    "load",
    "thread",
    "workload",
]
