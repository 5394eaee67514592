# A PyTorch DataLoader feeds a Keras model.
import keras
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

rng = np.random.default_rng(48)
x = torch.tensor(rng.normal(size=(36, 4)).astype("float32"))
y = torch.tensor(rng.integers(0, 3, size=36))
train = DataLoader(TensorDataset(x[:24], y[:24]), batch_size=6, shuffle=False)
test = DataLoader(TensorDataset(x[24:], y[24:]), batch_size=6)

model = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Dense(8, activation="mish"),
        keras.layers.LayerNormalization(),
        keras.layers.Dense(3),
    ]
)
model.compile(
    keras.optimizers.Lion(0.001),
    keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(train, epochs=2, validation_data=test, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][1]:.5f}")
print("predictions:", model.predict(test, verbose=0).shape)
