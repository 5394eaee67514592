# The functional API on a table of numbers.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 8)).astype("float32")
y = (x[:, 0] * x[:, 1] > 0).astype("float32")

inputs = keras.Input(shape=(8,), name="table")
h = layers.Dense(16, activation="relu")(inputs)
h = layers.Dense(16, activation="tanh", kernel_regularizer=keras.regularizers.l2(1e-3))(
    h
)
outputs = layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs, name="mlp")
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.01),
    loss="binary_crossentropy",
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=16, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.6f}")
print(f"second loss: {history.history['loss'][1]:.6f}")
loss, accuracy = model.evaluate(x, y, verbose=0)
print(f"test loss: {loss:.6f}")
print(f"accuracy: {accuracy:.4f}")
