"""HolisticTraceAnalysis: its nearest equivalents of our funnel, kernel table and idle causes."""

import sys

from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_files={0: sys.argv[1]})
analysis.get_temporal_breakdown(visualize=False)
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
analysis.get_comm_comp_overlap(visualize=False)
