"""Races as tasks of a Ray cluster."""
