"""Other forms of a layer's large weight: low-rank additions, small integers, float8."""
