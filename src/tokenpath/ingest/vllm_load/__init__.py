"""What tokenpath's own load generator measured at the client: requests (CSV) and tokens (JSON lines)."""
