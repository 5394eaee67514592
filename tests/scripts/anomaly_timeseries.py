# Anomalies in a series: an autoencoder of Conv1D, and its reconstruction error.
import keras
import numpy as np
from keras import layers

steps = np.arange(160)
values = np.sin(steps / 6).astype("float32")
windows = np.stack([values[i : i + 16] for i in range(len(values) - 16)])[..., None]
model = keras.Sequential(
    [
        layers.Input(shape=(16, 1)),
        layers.Conv1D(6, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1D(3, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(3, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(6, 5, padding="same", strides=2, activation="relu"),
        layers.Conv1DTranspose(1, 5, padding="same"),
    ]
)
model.compile(optimizer=keras.optimizers.Adam(learning_rate=0.005), loss="mse")
history = model.fit(
    windows,
    windows,
    epochs=2,
    batch_size=36,
    validation_split=0.25,
    verbose=0,
    callbacks=[
        keras.callbacks.EarlyStopping(monitor="val_loss", patience=5, mode="min")
    ],
)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][0]:.5f}")
error = np.mean(np.abs(model.predict(windows, verbose=0) - windows), axis=1)
print(f"threshold: {error.max():.4f}")
