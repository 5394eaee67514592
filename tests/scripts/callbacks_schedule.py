# LearningRateScheduler, a schedule object, and checkpoints that are loaded again.
import os

import keras
import numpy as np

rng = np.random.default_rng(12)
x = rng.uniform(size=(32, 4))
y = x.sum(axis=1, keepdims=True) ** 2


def build(rate):
    model = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(8, "elu"), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(rate), "mse", metrics=["mae"])
    return model


model = build(0.01)
history = model.fit(
    x,
    y,
    epochs=4,
    batch_size=8,
    verbose=0,
    callbacks=[
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.ModelCheckpoint(
            "{epoch:02d}.weights.h5", save_weights_only=True
        ),
    ],
)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"rate: {history.history['learning_rate'][-1]:.6f}")
print("files:", sorted(name for name in os.listdir() if name.endswith(".h5")))
again = build(keras.optimizers.schedules.CosineDecay(0.05, decay_steps=20))
again.load_weights("01.weights.h5")
history = again.fit(x, y, epochs=2, batch_size=8, verbose=0)
print(f"loaded loss: {history.history['loss'][0]:.5f}")
print(f"loaded mae: {history.history['mae'][1]:.5f}")
