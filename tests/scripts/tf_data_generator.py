# Data from a generator through tf.data, repeated, with steps an epoch.
import numpy as np
import tensorflow as tf


def sine_waves():
    rng = np.random.default_rng(4)
    for _ in range(24):
        frequency = rng.uniform(1, 4)
        steps = np.linspace(0, 1, 20, dtype="float32")
        yield np.sin(frequency * 2 * np.pi * steps)[:, None], np.float32(frequency)


ds = tf.data.Dataset.from_generator(
    sine_waves,
    output_signature=(
        tf.TensorSpec(shape=(20, 1), dtype=tf.float32),
        tf.TensorSpec(shape=(), dtype=tf.float32),
    ),
)
ds = ds.repeat().batch(6)
model = tf.keras.Sequential(
    [
        tf.keras.Input((20, 1)),
        tf.keras.layers.Conv1D(8, 5, activation="relu"),
        tf.keras.layers.GlobalAveragePooling1D(),
        tf.keras.layers.Dense(1),
    ]
)
model.compile("adam", "mse")
history = model.fit(ds, steps_per_epoch=4, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
print(f"test loss: {model.evaluate(ds, steps=2, verbose=0):.5f}")
