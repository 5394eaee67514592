# Generators, a PyDataset, validation generators, class and sample weights.
import math

import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
X = rng.normal(size=(160, 10)).astype("float32")
Y = (X[:, 0] + X[:, 1] > 0.8).astype("int32")


class Data(keras.utils.PyDataset):
    def __init__(self, x_set, y_set, batch_size, **kwargs):
        super().__init__(**kwargs)
        self.x, self.y = x_set, y_set
        self.batch_size = batch_size

    def __len__(self):
        return math.ceil(len(self.x) / self.batch_size)

    def __getitem__(self, idx):
        low = idx * self.batch_size
        high = min(low + self.batch_size, len(self.x))
        return self.x[low:high], self.y[low:high]

    def on_epoch_end(self):
        order = np.random.permutation(len(self.x))
        self.x, self.y = self.x[order], self.y[order]


def generator(x, y, batch_size, weighted=False):
    while True:
        index = rng.integers(0, len(x), batch_size)
        if weighted:
            yield x[index], y[index], np.ones(batch_size)
        else:
            yield x[index], y[index]


def mixup(x, y, batch_size, alpha=0.2):
    y = y.astype("float32")
    while True:
        lam = rng.beta(alpha, alpha, (batch_size, 1)).astype("float32")
        a = rng.integers(0, len(x), batch_size)
        b = rng.integers(0, len(x), batch_size)
        yield lam * x[a] + (1 - lam) * x[b], lam * y[a, None] + (1 - lam) * y[b, None]


model = keras.Sequential(
    [
        layers.Dense(16, activation="relu"),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile(
    "adam", "binary_crossentropy", metrics=["accuracy"], weighted_metrics=["accuracy"]
)
model.fit(
    Data(X, Y, 32, workers=1),
    epochs=2,
    verbose=2,
    validation_data=Data(X, Y, 32),
    class_weight={0: 1.0, 1: 3.0},
)
model.fit(
    generator(X, Y, 32),
    steps_per_epoch=5,
    epochs=2,
    verbose=2,
    validation_data=generator(X, Y, 32),
    validation_steps=2,
)
model.fit(generator(X, Y, 16, True), steps_per_epoch=4, epochs=1, verbose=0)
model.fit(mixup(X, Y, 32), steps_per_epoch=5, epochs=2, verbose=0)
weights = np.where(Y == 1, 2.0, 1.0)
model.fit(X, Y, sample_weight=weights, validation_data=(X, Y, weights), verbose=2)
print(model.evaluate(generator(X, Y, 32), steps=3, verbose=0))
print(model.evaluate(Data(X, Y, 32), verbose=0))
print(model.predict(Data(X, Y, 32), verbose=0).shape)
history = model.fit(Data(X, Y, 32), epochs=3, verbose=0)
print("final loss:", history.history["loss"][-1])
