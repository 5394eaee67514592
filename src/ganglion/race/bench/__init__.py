"""Milliseconds of a training step, measured side by side."""
