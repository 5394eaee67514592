# Dropout, Gaussian noise and spatial dropout, off when the model predicts.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(40)
x = rng.normal(size=(32, 6, 4)).astype("float32")
y = x.mean(axis=(1, 2))
model = keras.Sequential(
    [
        keras.Input((6, 4)),
        layers.SpatialDropout1D(0.25),
        layers.Conv1D(5, 3, activation="relu"),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(8, activation="relu"),
        layers.Dropout(0.2),
        layers.Dense(1),
    ]
)
model.compile("adam", "mse")
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
same = np.abs(model.predict(x, verbose=0) - model.predict(x, verbose=0)).max()
print("predictions repeat:", bool(same == 0))
