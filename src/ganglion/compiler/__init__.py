"""The compiler: step graphs, plans, and the backends that run them."""
