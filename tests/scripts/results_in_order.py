# Results of several outputs as a list: losses as written, then what each metric says.
import keras
import numpy as np
from keras import layers

rs = np.random.RandomState(0)
x = rs.rand(20, 4)
labels = {"wide": rs.rand(20, 2), "grade": rs.randint(0, 3, 20), "aim": rs.rand(20, 1)}


def several(as_dictionary):
    inputs = keras.Input((4,))
    outputs = {
        "wide": layers.Dense(2, name="wide")(inputs),
        "grade": layers.Dense(3, "softmax", name="grade")(inputs),
        "aim": layers.Dense(1, name="aim")(inputs),
    }
    return keras.Model(inputs, outputs if as_dictionary else list(outputs.values()))


class Nested(keras.Model):
    def __init__(self):
        super().__init__()
        self.first, self.second = layers.Dense(2), layers.Dense(1)

    def call(self, inputs):
        return {"main": self.first(inputs), "more": (self.second(inputs), inputs * 2)}


LOSSES = {"wide": "mse", "grade": "sparse_categorical_crossentropy", "aim": "mae"}
METRICS = {
    "wide": ["mae", keras.metrics.MeanSquaredError(name="second")],
    "grade": ["accuracy"],
}
for as_dictionary in (True, False):
    for losses in (LOSSES, dict(reversed(LOSSES.items()))):
        model = several(as_dictionary)
        model.compile(
            "sgd",
            losses,
            loss_weights={name: number + 1 for number, name in enumerate(losses)},
            metrics=METRICS,
            weighted_metrics={"aim": ["mse"]},
        )
        y = labels if as_dictionary else list(labels.values())
        model.fit(x, y, batch_size=5, verbose=0)
        for number, value in enumerate(model.evaluate(x, y, verbose=0)):
            print(f"loss or metric {number}: {value:.5f}")
        few = {name: values[:4] for name, values in labels.items()}
        few = few if as_dictionary else list(few.values())
        for number, value in enumerate(model.train_on_batch(x[:4], few)):
            print(f"loss or metric of a batch {number}: {value:.5f}")

model = several(True)
model.compile("sgd", "mse", metrics={"aim": ["mse"], "wide": ["mae"]})
y = labels | {"grade": rs.rand(20, 3)}
for number, value in enumerate(model.evaluate(x, y, verbose=0)):
    print(f"loss shared {number}: {value:.5f}")

model = Nested()
model.compile("sgd", {"main": "mse", "more": ("mae", None)})
y = {"main": rs.rand(20, 2), "more": (rs.rand(20, 1), rs.rand(20, 4))}
history = model.fit(x, y, batch_size=10, verbose=0).history
for name in history:
    print(f"{name}, nested loss: {history[name][0]:.5f}")
