# An own train_step that hands sample weights to all metrics, with one output and two.
import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Weighted(keras.Model):
    def train_step(self, data):
        x, y, *rest = data
        weight = rest[0] if rest else None
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred, sample_weight=weight)
        slopes = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(slopes, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            elif not metric.name.endswith("_loss"):
                metric.update_state(y, y_pred, sample_weight=weight)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, data):
        x, y = data
        y_pred = self(x, training=False)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            elif not metric.name.endswith("_loss"):
                metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


rs = np.random.RandomState(0)
x, weights = rs.rand(22, 4), rs.rand(22)
one, two = rs.rand(22, 1), {"left": rs.rand(22, 2), "right": rs.rand(22, 1)}
inputs = keras.Input((4,))
hidden = layers.Dense(5, "tanh")(inputs)
heads = {"left": layers.Dense(2, name="left"), "right": layers.Dense(1, name="right")}

single = Weighted(inputs, layers.Dense(1)(hidden))
single.compile("sgd", "mse", metrics=["mae"], weighted_metrics=["mape"])
double = Weighted(inputs, {name: head(hidden) for name, head in heads.items()})
double.compile(
    "sgd",
    {"left": "mse", "right": "mae"},
    metrics={"left": ["mae"], "right": ["mse"]},
    weighted_metrics={"right": ["mae"]},
)
for model, y in ((single, one), (double, two)):
    for options in ({"sample_weight": weights}, {"validation_data": (x, y)}):
        history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, **options).history
        for name in sorted(history):
            print(f"{model.output_names}, loss or {name}: {history[name][-1]:.5f}")
