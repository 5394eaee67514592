"""Backends: ways to run a step graph. `base` holds the contract and the registry."""
