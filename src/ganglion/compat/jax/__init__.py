"""The part of JAX that Keras scripts use, on Ganglion's ops.

`import jax` finds this room if Ganglion replaces Keras and KERAS_BACKEND is
``"jax"``: JAX itself can trace and differentiate only its own arrays.
"""
