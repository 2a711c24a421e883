"""What an event is, by its phase and category; codes of the texts that every file is given first."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import NDArray


class Sort(enum.IntEnum):
    """Where an event goes."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    OP = 3
    FRAME = 4
    API_CALL = 5
    HOST_RANGE = 6
    OVERHEAD = 7
    DEVICE_RANGE = 8
    SYNC = 9
    UNSORTED = 10
    """Complete events whose category is missing or unknown: decided when the file's processes are known."""
    MEMORY = 11
    METADATA = 12
    FLOW = 13
    LAUNCH_FLOW = 14
    """An arrow whose id is the correlation id that both its ends carry anyway."""
    BEGIN_END = 15
    PROFILER_SPAN = 16
    INSTANT = 17
    CUDA_EVENT = 18
    OTHER_PHASE = 19
    COUNTER = 20
    PROFILER_RANGE = 21


NUM_SORTS = len(Sort)

_CATEGORIES: dict[str, Sort] = {
    # libkineto/include/ActivityType.h, and the capitalised names of its 2021 version
    "kernel": Sort.KERNEL,
    "Kernel": Sort.KERNEL,
    "mtia_ccp_events": Sort.KERNEL,
    "privateuse1_kernel": Sort.KERNEL,
    "gpu_memcpy": Sort.MEMCPY,
    "Memcpy": Sort.MEMCPY,
    "gpu_memset": Sort.MEMSET,
    "Memset": Sort.MEMSET,
    "cpu_op": Sort.OP,
    "Operator": Sort.OP,
    "hpu_op": Sort.OP,
    "python_function": Sort.FRAME,
    "Python function": Sort.FRAME,
    "cuda_runtime": Sort.API_CALL,
    "cuda_driver": Sort.API_CALL,
    "Runtime": Sort.API_CALL,
    "xpu_runtime": Sort.API_CALL,
    "xpu_driver": Sort.API_CALL,
    "mtia_runtime": Sort.API_CALL,
    "glow_runtime": Sort.API_CALL,
    "privateuse1_runtime": Sort.API_CALL,
    "privateuse1_driver": Sort.API_CALL,
    "enqueue": Sort.API_CALL,
    "dequeue": Sort.API_CALL,
    "user_annotation": Sort.HOST_RANGE,
    "User Annotation": Sort.HOST_RANGE,
    "gpu_user_annotation": Sort.DEVICE_RANGE,
    "overhead": Sort.OVERHEAD,
    "cuda_sync": Sort.SYNC,
    "xpu_sync": Sort.SYNC,
    "cuda_event": Sort.CUDA_EVENT,
    "Trace": Sort.PROFILER_SPAN,
    "cuda_profiler_range": Sort.PROFILER_RANGE,
}
_LAUNCH_FLOWS = ("ac2g", "async_cpu_to_gpu", "async", "async_gpu")
_AUTOGRAD_FLOW = "fwdbwd"
_NAMES = ("[memory]", "[OutOfMemory]", "process_name", "thread_name", "process_labels")
_MTIA = "mtia_ccp_events"

FIRST_TEXTS: tuple[str, ...] = (*_CATEGORIES, *_LAUNCH_FLOWS, _AUTOGRAD_FLOW, *_NAMES)
"""Every reader of a file gives these texts their codes first, so that the codes are constants."""

_CODE = {text: code for code, text in enumerate(FIRST_TEXTS)}
MEMORY_CODE = _CODE["[memory]"]
OUT_OF_MEMORY_CODE = _CODE["[OutOfMemory]"]
PROCESS_NAME_CODE = _CODE["process_name"]
THREAD_NAME_CODE = _CODE["thread_name"]
PROCESS_LABELS_CODE = _CODE["process_labels"]
MTIA_CODE = _CODE[_MTIA]
PROFILER_RANGE_CODE = _CODE["cuda_profiler_range"]
HIP_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "Runtime"})

SORT_OF_COMPLETE = np.full(len(FIRST_TEXTS) + 1, Sort.UNSORTED, np.uint8)
"""Sort of a complete event by category code; the last entry is for every other code."""
for _name, _sort in _CATEGORIES.items():
    SORT_OF_COMPLETE[_CODE[_name]] = _sort

SORT_OF_PHASE = np.full(256, Sort.OTHER_PHASE, np.uint8)
"""Sort of an event that is not complete, by the ASCII code of its phase."""
for _phase, _sort in {
    "M": Sort.METADATA,
    "s": Sort.FLOW,
    "t": Sort.FLOW,
    "f": Sort.FLOW,
    "i": Sort.INSTANT,
    "I": Sort.INSTANT,
    "R": Sort.INSTANT,
    "n": Sort.INSTANT,
    "B": Sort.BEGIN_END,
    "E": Sort.BEGIN_END,
    "C": Sort.COUNTER,
}.items():
    SORT_OF_PHASE[ord(_phase)] = _sort

LAUNCH_FLOW_OF_CATEGORY = np.zeros(len(FIRST_TEXTS) + 1, bool)
"""Whether an arrow says nothing that its ends do not; by category code, the last entry for the rest."""
LAUNCH_FLOW_OF_CATEGORY[[_CODE[text] for text in (*_LAUNCH_FLOWS, _AUTOGRAD_FLOW)]] = True


def sort_rows(
    phase: NDArray[np.int64], category: NDArray[np.int64], name: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """The `Sort` of each raw row."""
    known = len(FIRST_TEXTS)
    index = np.where((category >= 0) & (category < known), category, known)
    sort = SORT_OF_PHASE[phase]
    complete = phase == ord("X")
    sort[complete] = SORT_OF_COMPLETE[index[complete]]
    sort[(sort == Sort.FLOW) & LAUNCH_FLOW_OF_CATEGORY[index]] = Sort.LAUNCH_FLOW
    memory = (name == MEMORY_CODE) | (name == OUT_OF_MEMORY_CODE)
    sort[(sort == Sort.INSTANT) & memory] = Sort.MEMORY
    return sort
