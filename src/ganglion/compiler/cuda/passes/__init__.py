"""Passes over the kernels of a plan that only a GPU wants."""
