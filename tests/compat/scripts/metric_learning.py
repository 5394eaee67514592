# Metric learning with a custom train step replaced by compute_loss; tied weights.
import keras
import numpy as np
from keras import layers, ops


class DenseTranspose(layers.Layer):
    def __init__(self, dense, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.dense = dense
        self.activation = keras.activations.get(activation)

    def build(self, batch_input_shape):
        self.biases = self.add_weight(
            name="bias", shape=(self.dense.kernel.shape[0],), initializer="zeros"
        )
        super().build(batch_input_shape)

    def call(self, inputs):
        z = ops.matmul(inputs, ops.transpose(self.dense.kernel))
        return self.activation(z + self.biases)


rng = np.random.default_rng(0)
x = (rng.random((120, 20)) > 0.7).astype("float32")
dense_1 = layers.Dense(10, activation="selu", kernel_initializer="lecun_normal")
dense_2 = layers.Dense(4, activation="selu")
inputs = keras.Input((20,))
code = dense_2(dense_1(inputs))
out = DenseTranspose(dense_1, activation="sigmoid")(
    DenseTranspose(dense_2, activation="selu")(code)
)
tied = keras.Model(inputs, out)
tied.compile(
    loss="binary_crossentropy", optimizer=keras.optimizers.SGD(learning_rate=1.5)
)
history = tied.fit(x, x, epochs=4, verbose=0)


class TripletModel(keras.Model):
    def __init__(self, embed, margin=0.5):
        super().__init__()
        self.embed = embed
        self.margin = margin

    def call(self, inputs):
        anchor, positive, negative = inputs
        a, p, n = self.embed(anchor), self.embed(positive), self.embed(negative)
        ap = ops.sum(ops.square(a - p), -1)
        an = ops.sum(ops.square(a - n), -1)
        loss = ops.maximum(ap - an + self.margin, 0.0)
        self.add_loss(ops.mean(loss))
        return ap, an


embed = keras.Sequential(
    [
        layers.Dense(16, activation="relu"),
        layers.Dense(8),
        layers.UnitNormalization(),
    ]
)
triplets = [rng.normal(size=(64, 6)) + c for c in (0.0, 0.1, 1.0)]
model = TripletModel(embed)
model.compile(optimizer="adam")
history = model.fit(triplets, epochs=5, verbose=0)
print([out.shape for out in model.predict(triplets, verbose=0)])
print("final loss:", history.history["loss"][-1])
