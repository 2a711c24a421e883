"""CSV exports of Nsight Compute: hardware counters of single launches."""
