# Plain generators for training and validation, with steps and sample weights.
import keras
import numpy as np


def batches(seed, with_weights):
    rng = np.random.default_rng(seed)
    while True:
        x = rng.normal(size=(8, 5)).astype("float32")
        y = (x[:, :2].sum(axis=1, keepdims=True) > 0).astype("float32")
        yield (x, y, 1 + y[:, 0]) if with_weights else (x, y)


model = keras.Sequential()
model.add(keras.Input((5,)))
model.add(keras.layers.Dense(7))
model.add(keras.layers.PReLU())
model.add(keras.layers.Dense(1, activation="sigmoid"))
model.compile("adam", "binary_crossentropy", weighted_metrics=["accuracy"])
history = model.fit(
    batches(45, True),
    steps_per_epoch=5,
    epochs=2,
    validation_data=batches(46, False),
    validation_steps=2,
    verbose=0,
)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[0]:.5f}")
print(f"test loss: {model.evaluate(batches(47, False), steps=3, verbose=0)[0]:.5f}")
