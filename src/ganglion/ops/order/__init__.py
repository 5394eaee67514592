"""Order and counting: sorting, searching, quantiles, segments, what leaves NaN out."""
