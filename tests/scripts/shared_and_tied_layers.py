# Tied weights, a shared layer in two branches, layers in lists and dictionaries, two optimizers.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

rng = np.random.default_rng(0)
x = rng.normal(size=(24, 6)).astype("float32")
y = rng.normal(size=(24, 1)).astype("float32")


class Transposed(layers.Layer):
    def __init__(self, dense, **kwargs):
        super().__init__(**kwargs)
        self.dense = dense

    def build(self, input_shape):
        self.biases = self.add_weight(shape=(self.dense.kernel.shape[0],), initializer="zeros")

    def call(self, inputs):
        return ops.matmul(inputs, ops.transpose(self.dense.kernel)) + self.biases


class Block(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.hidden = [layers.Dense(units, activation="elu") for _ in range(2)]
        self.named = {"norm": layers.BatchNormalization(), "out": layers.Dense(units)}

    def call(self, inputs, training=None):
        z = inputs
        for layer in self.hidden:
            z = layer(z)
        return inputs + self.named["out"](self.named["norm"](z, training=training))


first, second = layers.Dense(5, activation="selu"), layers.Dense(3, activation="selu")
inputs = keras.Input((6,))
tied = keras.Model(inputs, Transposed(first)(Transposed(second)(second(first(inputs)))))
tied.compile("nadam", "mse")
history = tied.fit(x, x, epochs=2, batch_size=8, verbose=0)
print(f"tied loss: {history.history['loss'][-1]:.5f}")
print("weights", len(tied.trainable_weights))
left, right, shared = keras.Input((6,)), keras.Input((6,)), layers.Dense(4, activation="tanh")
apart = layers.Lambda(lambda pair: ops.abs(pair[0] - pair[1]))([shared(left), shared(right)])
twins = keras.Model([left, right], layers.Dense(1)(Block(4)(apart)))
twins.compile("rmsprop", "mse")
history = twins.fit([x, x[::-1].copy()], y, epochs=2, batch_size=8, verbose=0)
print(f"twins loss: {history.history['loss'][-1]:.5f}")
print("weights", len(twins.trainable_weights), len(twins.non_trainable_weights))
slow, fast = keras.optimizers.SGD(0.001), keras.optimizers.Adam(0.05)
for _ in range(3):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(tied(x, training=True) - x))
    weights = first.trainable_variables + second.trainable_variables
    grads = tape.gradient(loss, weights)
    slow.apply_gradients(zip(grads[:2], weights[:2]))
    fast.apply_gradients(zip(grads[2:], weights[2:]))
print(f"two optimizers loss: {float(loss):.5f}")
