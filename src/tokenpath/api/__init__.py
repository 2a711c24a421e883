"""One file a verb: what the command line, the server and Python users call.

from tokenpath.api import explain
result = explain(["run/rank0.json.gz"])
print(result.report.answer)
"""

from tokenpath.api.calibrate import Calibrated, calibrate
from tokenpath.api.compare import Comparison, compare
from tokenpath.api.convert import convert
from tokenpath.api.explain import Explained, explain
from tokenpath.api.inspect import inspect
from tokenpath.api.lab import LabRequest, generate_lab, lab, score_folder
from tokenpath.api.load import load
from tokenpath.api.simulate import SimulatedRun, compare_runs, simulate, simulate_from
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
    "Comparison",
    "DescribedWorkload",
    "Explained",
    "FittedWorkload",
    "LabRequest",
    "SimulatedRun",
    "Threaded",
    "WindowRequest",
    "about",
    "calibrate",
    "codes",
    "compare",
    "compare_runs",
    "convert",
    "describe_workload",
    "explain",
    "fit_workload",
    "generate_lab",
    "inspect",
    "lab",
    "load",
    "score_folder",
    "simulate",
    "simulate_from",
    "thread",
    "workload",
]
