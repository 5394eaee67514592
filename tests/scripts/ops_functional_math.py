# Operators and keras.ops on Keras tensors, in a functional model.
import keras
import numpy as np
from keras import ops

rng = np.random.default_rng(21)
x = rng.normal(size=(32, 4, 3)).astype("float32")
y = np.linalg.norm(x, axis=-1).mean(axis=1, keepdims=True).astype("float32")

inputs = keras.Input((4, 3))
scores = keras.layers.Dense(1)(inputs)
weights = ops.softmax(scores, axis=1)
pooled = ops.sum(inputs * weights, axis=1)
spread = ops.sqrt(
    ops.mean(ops.square(inputs - ops.expand_dims(pooled, 1)), axis=1) + 1e-6
)
joined = ops.concatenate([pooled, spread, ops.max(inputs, axis=1)], axis=-1)
outputs = keras.layers.Dense(1)(keras.activations.gelu(keras.layers.Dense(8)(joined)))
model = keras.Model(inputs, outputs)
model.compile(keras.optimizers.AdamW(0.01, weight_decay=0.01), "mean_squared_error")
history = model.fit(x, y, epochs=2, batch_size=8, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
