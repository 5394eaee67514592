"""TensorFlow's names, as far as Keras scripts use them, on Ganglion's ops."""
