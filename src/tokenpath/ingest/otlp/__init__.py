"""OpenTelemetry traces, as JSON or protobuf. Start at `document`, then `batch`, then `requests`."""
