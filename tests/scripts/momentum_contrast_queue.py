# Momentum contrast: a queue of keys in a tf.Variable, and an encoder that follows.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

rng = np.random.default_rng(13)
images = rng.random((32, 8, 8, 1)).astype("float32")


def encoder():
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(6),
        ]
    )


class Contrast(keras.Model):
    def __init__(self, size=16):
        super().__init__()
        self.query, self.key = encoder(), encoder()
        self.key.set_weights(self.query.get_weights())
        keys = rng.normal(size=(size, 6)).astype("float32")
        self.queue = tf.Variable(tf.math.l2_normalize(keys, axis=1), trainable=False)

    def train_step(self, data):
        mirrored = data[:, :, ::-1]
        with tf.GradientTape() as tape:
            query = tf.math.l2_normalize(self.query(data, training=True), axis=1)
            key = tf.math.l2_normalize(self.key(mirrored, training=True), axis=1)
            same = tf.reduce_sum(query * key, axis=1, keepdims=True)
            others = tf.matmul(query, tf.stop_gradient(self.queue), transpose_b=True)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=tf.zeros(tf.shape(same)[0], dtype=tf.int64),
                    logits=tf.concat([same, others], axis=1) / 0.2,
                )
            )
        variables = self.query.trainable_variables
        gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables))
        self.queue.assign(tf.concat([key, self.queue[:-8]], axis=0))
        for ours, follows in zip(self.query.weights, self.key.weights):
            follows.assign(0.9 * follows + 0.1 * ours)
        return {"loss": loss}


model = Contrast()
model.compile("adam")
history = model.fit(images, batch_size=8, epochs=2, verbose=0)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"loss of epoch {epoch}: {loss:.5f}")
print(f"queue: {float(tf.reduce_sum(model.queue)):.4f}")
print(f"keys: {sum(np.abs(w).sum() for w in model.key.get_weights()):.4f}")
