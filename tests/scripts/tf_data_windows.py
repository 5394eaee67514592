# Forecasting with windows cut by tf.data, as in the time series tutorials.
import numpy as np
import tensorflow as tf

time = np.arange(50, dtype="float32")
series = 0.05 * time + np.sin(time / 3)
WINDOW, BATCH = 8, 16


def windowed(series):
    ds = tf.data.Dataset.from_tensor_slices(series[:, None])
    ds = ds.window(WINDOW + 1, shift=1, drop_remainder=True)
    ds = ds.flat_map(lambda w: w.batch(WINDOW + 1))
    ds = ds.map(lambda w: (w[:-1], w[-1]))
    return ds.batch(BATCH).prefetch(1)


model = tf.keras.models.Sequential(
    [
        tf.keras.layers.Input((WINDOW, 1)),
        tf.keras.layers.Conv1D(6, 3, padding="causal", activation="relu"),
        tf.keras.layers.LSTM(5),
        tf.keras.layers.Dense(1),
    ]
)
model.compile(loss=tf.keras.losses.Huber(), optimizer="adam", metrics=["mae"])
history = model.fit(windowed(series), epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"mae: {history.history['mae'][1]:.5f}")
forecast = model.predict(windowed(series), verbose=0)
print("forecast:", forecast.shape)
