"""What is asked of a deployment: arrivals, lengths, shared content, sessions."""
