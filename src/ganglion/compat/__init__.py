"""Support for old scripts: removed names, ImageDataGenerator, TensorFlow, JAX."""
