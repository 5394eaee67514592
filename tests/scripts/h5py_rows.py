# Rows from an HDF5 file, without loading it first.
import h5py
import keras
import numpy as np

rng = np.random.default_rng(60)
with h5py.File("rows.h5", "w") as file:
    x = rng.normal(size=(50, 6)).astype("float32")
    file["x"] = x
    file["y"] = (x**2).sum(axis=1, keepdims=True)

with h5py.File("rows.h5", "r") as file:
    model = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(10, activation="softplus"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adadelta(0.5), "mae")
    history = model.fit(
        file["x"], file["y"], batch_size=10, epochs=2, shuffle=False, verbose=0
    )
    print(f"loss: {history.history['loss'][0]:.5f}")
    print(f"second loss: {history.history['loss'][1]:.5f}")
    print(f"test loss: {model.evaluate(file['x'], file['y'], verbose=0):.5f}")
    print("predictions:", model.predict(file["x"], verbose=0).shape)
