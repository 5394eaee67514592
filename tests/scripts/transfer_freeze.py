# Transfer learning: a base network is frozen, then fine-tuned.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(14)
x = rng.uniform(size=(24, 8, 8, 3)).astype("float32")
y = rng.integers(0, 2, size=24)

base = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.Conv2D(6, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
    ],
    name="base",
)
base.trainable = False
inputs = keras.Input(shape=(8, 8, 3))
h = layers.Rescaling(scale=2.0, offset=-1)(inputs)
h = base(h, training=False)
outputs = layers.Dense(1)(h)
model = keras.Model(inputs, outputs)
model.compile(
    "adam",
    keras.losses.BinaryCrossentropy(from_logits=True),
    metrics=[keras.metrics.BinaryAccuracy(threshold=0.0)],
)
before = base.get_weights()[0].copy()
history = model.fit(x, y, epochs=2, batch_size=8, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(
    "frozen:",
    bool((before == base.get_weights()[0]).all()),
    len(model.trainable_weights),
)
base.trainable = True
model.compile(
    keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True)
)
history = model.fit(x, y, epochs=1, batch_size=8, verbose=0)
print(f"fine-tuned loss: {history.history['loss'][0]:.5f}")
print("trainable:", len(model.trainable_weights))
