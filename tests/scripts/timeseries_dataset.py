# Weather-like series through timeseries_dataset_from_array.
import keras
import numpy as np

steps = np.arange(100)
series = np.stack([np.sin(steps / 8), np.cos(steps / 5), steps / 100], axis=1).astype(
    "float32"
)
target = series[:, 0]
split = 76


def windows(first, last):
    return keras.utils.timeseries_dataset_from_array(
        series[first:last],
        targets=target[first + 6 : last],
        sequence_length=6,
        sampling_rate=1,
        batch_size=24,
    )


train, validation = windows(0, split), windows(split, 100)
for batch_x, batch_y in train:
    print("shapes:", tuple(batch_x.shape), tuple(batch_y.shape))
    break
inputs = keras.Input((6, 3))
h = keras.layers.LSTM(8)(inputs)
model = keras.Model(inputs, keras.layers.Dense(1)(h))
model.compile(keras.optimizers.Adam(0.01), "mse")
history = model.fit(train, epochs=2, validation_data=validation, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][1]:.5f}")
