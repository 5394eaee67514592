# Contrastive learning with few labels: batches of labelled and other rows, zipped.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

r = np.random.default_rng(0)
x = r.random((24, 6)).astype("float32")
y = r.integers(0, 3, 24)
unlabelled = tf.data.Dataset.from_tensor_slices((x, y)).batch(6)
labelled = tf.data.Dataset.from_tensor_slices((x[:8], y[:8])).batch(2)
data = tf.data.Dataset.zip((unlabelled, labelled)).prefetch(tf.data.AUTOTUNE)


class Contrastive(keras.Model):
    def __init__(self):
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((6,)), layers.Dense(5, "relu")])
        self.probe = keras.Sequential([keras.Input((5,)), layers.Dense(3)])

    def compile(self, first, second):
        super().compile()
        self.first, self.second = first, second
        self.loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.contrast = keras.metrics.Mean(name="contrast_loss")
        self.guess = keras.metrics.Mean(name="probe_loss")

    @property
    def metrics(self):
        return [self.contrast, self.guess]

    def contrastive_loss(self, one, other):
        one, other = ops.normalize(one, axis=1), ops.normalize(other, axis=1)
        similarity = ops.matmul(one, ops.transpose(other)) / 0.1
        rows = ops.arange(ops.shape(one)[0])
        return keras.losses.sparse_categorical_crossentropy(
            rows, similarity, from_logits=True
        )

    def train_step(self, data):
        (plain, _), (rows, labels) = data
        images = ops.concatenate((plain, rows), axis=0)
        with tf.GradientTape() as tape:
            loss = self.contrastive_loss(
                self.encoder(images * 0.9), self.encoder(images + 0.1)
            )
        weights = self.encoder.trainable_weights
        self.first.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.contrast.update_state(loss)
        with tf.GradientTape() as tape:
            scores = self.probe(self.encoder(rows, training=False), training=True)
            loss = self.loss_fn(labels, scores)
        weights = self.probe.trainable_weights
        self.second.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.guess.update_state(loss)
        return {metric.name: metric.result() for metric in self.metrics}


model = Contrastive()
model.compile(keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.01))
history = model.fit(data, epochs=2, verbose=0).history
for name in sorted(history):
    print(f"{name}: {history[name][0]:.5f}")
    print(f"second {name}: {history[name][1]:.5f}")
