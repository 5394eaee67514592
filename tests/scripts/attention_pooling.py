# Bahdanau-like attention in a layer; the weights are a second output.
import tensorflow as tf
from tensorflow import keras
import numpy as np


class Attention(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.project = keras.layers.Dense(units)
        self.score = keras.layers.Dense(1)

    def call(self, values):
        scores = self.score(tf.nn.tanh(self.project(values)))
        weights = tf.nn.softmax(scores, axis=1)
        context = tf.reduce_sum(weights * values, axis=1)
        return context, tf.squeeze(weights, axis=-1)


rng = np.random.default_rng(50)
x = rng.normal(size=(30, 6, 4)).astype("float32")
y = x[np.arange(30), np.abs(x[:, :, 0]).argmax(axis=1), 1]
inputs = keras.Input(shape=(6, 4))
encoded = keras.layers.GRU(5, return_sequences=True)(inputs)
context, weights = Attention(4)(encoded)
model = keras.Model(inputs, keras.layers.Dense(1)(context))
look = keras.Model(inputs, weights)
model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss="mse")
history = model.fit(x, y, batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
print(f"sum: {float(look.predict(x[:1], verbose=0).sum()):.4f}")
