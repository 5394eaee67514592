"""Formats of a layer's large weight: low-rank additions, int8 and int4, float8."""
