"""Chrome trace event JSON, as many tools write it and Perfetto reads it."""
