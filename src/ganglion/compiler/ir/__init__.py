"""The graph: values, primitive ops, gradients, simplification, verification."""
