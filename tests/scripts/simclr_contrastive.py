# Contrastive pretraining: two views of each row, an InfoNCE loss, then a probe.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Contrastive(keras.Model):
    def __init__(self, encoder, head, temperature=0.2):
        super().__init__()
        self.encoder, self.head, self.temperature = encoder, head, temperature
        self.tracker = keras.metrics.Mean(name="c_loss")

    @property
    def metrics(self):
        return [self.tracker]

    def contrastive_loss(self, first, second):
        first, second = ops.normalize(first, axis=1), ops.normalize(second, axis=1)
        similarities = ops.matmul(first, ops.transpose(second)) / self.temperature
        labels = ops.arange(ops.shape(first)[0])
        there = keras.losses.sparse_categorical_crossentropy(
            labels, similarities, from_logits=True
        )
        back = keras.losses.sparse_categorical_crossentropy(
            labels, ops.transpose(similarities), from_logits=True
        )
        return ops.mean(there + back) / 2

    def train_step(self, data):
        first, second = data
        with tf.GradientTape() as tape:
            one = self.head(self.encoder(first, training=True))
            two = self.head(self.encoder(second, training=True))
            loss = self.contrastive_loss(one, two)
        weights = self.encoder.trainable_weights + self.head.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.tracker.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


rng = np.random.default_rng(36)
x = rng.normal(size=(32, 8)).astype("float32")
views = [x + rng.normal(scale=0.1, size=x.shape).astype("float32") for _ in range(2)]
encoder = keras.Sequential(
    [keras.Input((8,)), layers.Dense(12, "relu"), layers.Dense(6)]
)
head = keras.Sequential([keras.Input((6,)), layers.Dense(4)])
model = Contrastive(encoder, head)
model.compile(optimizer=keras.optimizers.Adam(0.01))
history = model.fit(views[0], views[1], batch_size=16, epochs=2, verbose=0)
print(f"loss: {history.history['c_loss'][0]:.5f}")
print(f"second loss: {history.history['c_loss'][1]:.5f}")
encoder.trainable = False
probe = keras.Sequential([keras.Input((8,)), encoder, layers.Dense(2)])
probe.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
history = probe.fit(x, (x[:, 0] > 0).astype("int32"), batch_size=16, verbose=0)
print(f"probe loss: {history.history['loss'][0]:.5f}")
