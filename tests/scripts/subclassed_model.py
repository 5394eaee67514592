# A model written as a class, with a layer of its own inside.
import keras
import numpy as np
from keras import layers, ops


class Gated(layers.Layer):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(
            shape=(input_shape[-1], self.units), initializer="glorot_uniform", name="w"
        )
        self.gate = self.add_weight(
            shape=(input_shape[-1], self.units), initializer="he_normal", name="gate"
        )

    def call(self, inputs):
        return ops.matmul(inputs, self.w) * ops.sigmoid(ops.matmul(inputs, self.gate))


class Net(keras.Model):
    def __init__(self, classes):
        super().__init__()
        self.first = Gated(12)
        self.blocks = [Gated(12) for _ in range(2)]
        self.classify = layers.Dense(classes, activation="softmax")

    def call(self, x, training=False):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.classify(x)


rng = np.random.default_rng(5)
x = rng.normal(size=(50, 7)).astype("float32")
y = np.abs(x[:, :3]).argmax(axis=1)
model = Net(3)
model.compile(
    keras.optimizers.Nadam(0.01),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"accuracy: {history.history['accuracy'][1]:.4f}")
print("variables:", len(model.trainable_variables))
