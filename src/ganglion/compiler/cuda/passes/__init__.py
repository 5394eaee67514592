"""Passes over the kernels of a plan, for a GPU only."""
