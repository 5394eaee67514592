# Class weights beside a validation split: what is held out is not weighted.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(3)
x = rng.normal(size=(60, 5)).astype("float32")
y = (x[:, 0] + 0.3 * rng.normal(size=60) > 0.6).astype(int)
counts = np.bincount(y)
class_weight = {label: len(y) / (2 * count) for label, count in enumerate(counts)}


def build(outputs, activation):
    return keras.Sequential(
        [
            keras.Input((5,)),
            layers.BatchNormalization(),
            layers.Dense(6, activation="relu"),
            layers.Dense(outputs, activation=activation),
        ]
    )


model = build(1, "sigmoid")
metrics = [keras.metrics.AUC(name="auc"), "accuracy"]
model.compile("adam", "binary_crossentropy", metrics=metrics, weighted_metrics=["mae"])
history = model.fit(
    x, y, batch_size=8, epochs=2, validation_split=0.25, class_weight=class_weight,
    verbose=0,
)  # fmt: skip
for name, values in sorted(history.history.items()):
    for epoch, value in enumerate(values):
        print(f"{name} of epoch {epoch}: {value:.5f}")
print(f"held out, alone: {model.evaluate(x[45:], y[45:], verbose=0)[0]:.5f}")

model = build(2, "softmax")
model.compile("sgd", "categorical_crossentropy")
history = model.fit(
    x, np.eye(2)[y], validation_split=0.4, class_weight=class_weight, verbose=0
)
for name, values in sorted(history.history.items()):
    print(f"one-hot, {name}: {values[0]:.5f}")
