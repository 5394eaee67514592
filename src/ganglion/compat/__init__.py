"""Support for old scripts: names that are gone, ImageDataGenerator, TensorFlow, JAX."""
