"""Passes over the plan of a step, for the CPU only."""
