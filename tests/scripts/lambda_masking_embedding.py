# Masking and Lambda layers, and an embedding whose zeros are padding.
import keras
import numpy as np
from keras import layers, ops

rng = np.random.default_rng(53)
lengths = rng.integers(2, 6, size=24)
x = rng.normal(size=(24, 6, 3)).astype("float32")
for row, length in zip(x, lengths):
    row[length:] = -1.0
y = np.array([row[:length, 0].sum() for row, length in zip(x, lengths)])

inputs = keras.Input((6, 3))
h = layers.Masking(mask_value=-1.0)(inputs)
h = layers.LSTM(6, return_sequences=True)(h)
h = layers.SimpleRNN(5)(h)
h = layers.Lambda(lambda t: ops.concatenate([t, ops.square(t)], axis=-1))(h)
outputs = layers.Dense(1)(h)
model = keras.Model(inputs, outputs)
model.compile("adam", "mse", metrics=[keras.metrics.RootMeanSquaredError(name="rmse")])
history = model.fit(x, y, batch_size=6, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"rmse: {history.history['rmse'][0]:.5f}")
