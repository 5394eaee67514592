# A codebook that follows moving averages: weights assigned in `call`, added losses.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

DECAY = 0.9


class Codebook(layers.Layer):
    def __init__(self, entries, width, **options):
        super().__init__(**options)
        self.entries, self.width = entries, width
        fixed = {"trainable": False}
        shape = (width, entries)
        self.codes = self.add_weight(shape=shape, initializer="uniform", **fixed)
        self.sums = self.add_weight(shape=shape, initializer="uniform", **fixed)
        self.counts = self.add_weight(shape=(entries,), initializer="ones", **fixed)

    def call(self, x, training=None):
        rows = tf.reshape(x, [-1, self.width])
        distances = tf.reduce_sum(rows**2, axis=1, keepdims=True)
        distances += tf.reduce_sum(self.codes**2, axis=0)
        distances -= 2 * tf.matmul(rows, self.codes)
        chosen = tf.one_hot(tf.argmin(distances, axis=1), self.entries)
        found = tf.matmul(chosen, self.codes, transpose_b=True)
        found = tf.reshape(found, tf.shape(x))
        if training:
            counts = DECAY * self.counts + (1 - DECAY) * tf.reduce_sum(chosen, axis=0)
            sums = tf.matmul(rows, chosen, transpose_a=True)
            self.sums.assign(DECAY * self.sums + (1 - DECAY) * sums)
            self.counts.assign(counts)
            self.codes.assign(self.sums / (counts + 1e-5))
        self.add_loss(0.25 * tf.reduce_mean((tf.stop_gradient(found) - x) ** 2))
        return x + tf.stop_gradient(found - x)


inputs = keras.Input((8, 8, 1))
x = layers.Conv2D(6, 3, strides=2, padding="same", activation="relu")(inputs)
x = Codebook(12, 3, name="codebook")(layers.Conv2D(3, 1)(x))
x = layers.Conv2DTranspose(6, 3, strides=2, padding="same", activation="relu")(x)
network = keras.Model(inputs, layers.Conv2DTranspose(1, 3, padding="same")(x))


class Trainer(keras.Model):
    def __init__(self, network):
        super().__init__()
        self.network = network
        self.total = keras.metrics.Mean(name="loss")
        self.commitment = keras.metrics.Mean(name="commitment_loss")

    @property
    def metrics(self):
        return [self.total, self.commitment]

    def train_step(self, images):
        with tf.GradientTape() as tape:
            error = tf.reduce_mean((images - self.network(images, training=True)) ** 2)
            loss = error + sum(self.network.losses)
        weights = self.network.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        self.total.update_state(loss)
        self.commitment.update_state(sum(self.network.losses))
        return {metric.name: metric.result() for metric in self.metrics}


images = np.random.RandomState(0).rand(24, 8, 8, 1).astype("float32")
trainer = Trainer(network)
trainer.compile(keras.optimizers.Adam(1e-3))
history = trainer.fit(images, epochs=3, batch_size=8, verbose=0).history
for name in ("loss", "commitment_loss"):
    print(f"{name}: {history[name][-1]:.5f}")
codebook = network.get_layer("codebook")
for name, array in zip(("codes", "sums", "counts"), codebook.get_weights()):
    print(f"loss of {name}: {np.abs(array).sum():.4f}")
