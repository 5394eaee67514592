"""The plan: a step graph as an ordered list of kernels over buffers in one arena."""
