"""What Keras scripts for JAX use of it, on Ganglion's ops.

`import jax` finds this room where Ganglion stands for Keras and KERAS_BACKEND is
``"jax"``: JAX itself can neither trace nor differentiate what is no array of its own.
"""
