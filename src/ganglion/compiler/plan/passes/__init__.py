"""Passes over a step graph, or over the kernels of a plan, for any target."""
