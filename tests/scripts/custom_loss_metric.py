# Losses as classes and functions, a metric with state, add_loss in a layer.
import keras
from keras import ops
import numpy as np


class Focal(keras.losses.Loss):
    def __init__(self, gamma=2.0, name="focal"):
        super().__init__(name=name)
        self.gamma = gamma

    def call(self, y_true, y_pred):
        y_pred = ops.clip(y_pred, 1e-6, 1 - 1e-6)
        chance = ops.where(y_true > 0.5, y_pred, 1 - y_pred)
        return ops.mean(-((1 - chance) ** self.gamma) * ops.log(chance), axis=-1)


class Share(keras.metrics.Metric):
    def __init__(self, name="share", **kwargs):
        super().__init__(name=name, **kwargs)
        self.hits = self.add_weight(name="hits", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        right = ops.cast(
            (y_pred > 0.5) == (ops.cast(y_true, "float32") > 0.5), "float32"
        )
        self.hits.assign_add(ops.sum(right))
        self.count.assign_add(ops.cast(ops.size(right), "float32"))

    def result(self):
        return self.hits / self.count


class Sparse(keras.layers.Layer):
    def call(self, inputs):
        self.add_loss(0.01 * ops.mean(ops.abs(inputs)))
        return inputs


rng = np.random.default_rng(20)
x = rng.normal(size=(40, 5)).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 0).astype("float32")
model = keras.Sequential(
    [
        keras.Input((5,)),
        keras.layers.Dense(6, "relu"),
        Sparse(),
        keras.layers.Dense(1, "sigmoid"),
    ]
)
model.compile("adam", Focal(gamma=1.5), metrics=[Share()])
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"share: {history.history['share'][1]:.4f}")
