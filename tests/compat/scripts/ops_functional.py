# Functional models written with ops and operators on Keras tensors.
import keras
import numpy as np
from keras import layers, ops

inputs = keras.Input((12, 8))
q = layers.Dense(16)(inputs)
k = layers.Dense(16)(inputs)
v = layers.Dense(16)(inputs)
scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / ops.sqrt(16.0)
att = ops.softmax(scores, axis=-1)
h = ops.matmul(att, v)
h = h[:, -4:, :] + ops.expand_dims(ops.mean(h, axis=1), 1)
h = ops.concatenate([h, ops.flip(h, axis=1)], axis=-1)
h = ops.reshape(h, (-1, 4 * 32))
gate = 1.0 - keras.activations.sigmoid(layers.Dense(128)(h))
h = ops.where(h > 0, h * gate, 0.1 * h)
h = h / (ops.norm(h, axis=-1, keepdims=True) + 1e-6)
outputs = layers.Dense(3, activation="softmax")(h)
model = keras.Model(inputs, outputs)
model.summary()
rng = np.random.default_rng(0)
x = rng.normal(size=(96, 12, 8)).astype("float32")
y = x.mean(axis=1)[:, :3].argmax(axis=1)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, epochs=5, batch_size=16, verbose=0)
print("final loss:", history.history["loss"][-1])
