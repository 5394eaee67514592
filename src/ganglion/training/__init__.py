"""Training: from a compiled model and data to steps, epochs and a history."""
