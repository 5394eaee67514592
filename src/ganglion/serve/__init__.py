"""A model over HTTP, a page to try it, and a page to watch a training."""
