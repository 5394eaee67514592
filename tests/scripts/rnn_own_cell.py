# A recurrent cell of its own inside of RNN, stacked with a GRU.
import keras
import numpy as np
from keras import layers, ops


class MinimalCell(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = units

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(input_shape[-1], self.units), initializer="uniform", name="kernel"
        )
        self.recurrent = self.add_weight(
            shape=(self.units, self.units), initializer="orthogonal", name="recurrent"
        )

    def call(self, inputs, states):
        output = ops.tanh(
            ops.matmul(inputs, self.kernel) + ops.matmul(states[0], self.recurrent)
        )
        return output, [output]


rng = np.random.default_rng(49)
x = rng.normal(size=(24, 7, 3)).astype("float32")
y = x[:, :, 0].cumsum(axis=1)[:, -1:]
inputs = keras.Input((7, 3))
h = layers.RNN(MinimalCell(6), return_sequences=True)(inputs)
h = layers.GRU(4, return_sequences=True, go_backwards=True)(h)
h = layers.TimeDistributed(layers.Dense(3, activation="relu"))(h)
outputs = layers.Dense(1)(layers.Flatten()(h))
model = keras.Model(inputs, outputs)
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
