# A critic with max pooling whose penalty is on its slope: a gradient of a gradient.
import keras
import numpy as np
import tensorflow as tf
from keras import layers


class Critic(keras.Model):
    def __init__(self):
        super().__init__()
        self.network = keras.Sequential(
            [
                keras.Input((10, 10, 2)),
                layers.Conv2D(4, 3, activation="tanh"),
                layers.MaxPooling2D(2),
                layers.Conv2D(5, 2, activation="softplus"),
                layers.MaxPooling2D(3, strides=2, padding="same"),
                layers.Conv2D(3, 2, padding="same"),
                layers.GlobalMaxPooling2D(),
                layers.Dense(1),
            ]
        )
        self.penalties = keras.metrics.Mean(name="penalty")

    @property
    def metrics(self):
        return [self.penalties]

    def call(self, images):
        return self.network(images)

    def slope(self, images):
        with tf.GradientTape() as tape:
            tape.watch(images)
            scores = self(images, training=True)
        return tape.gradient(scores, images)

    def train_step(self, data):
        images, signs = data
        with tf.GradientTape() as tape:
            scores = self(images, training=True)
            norms = tf.sqrt(tf.reduce_sum(self.slope(images) ** 2, axis=[1, 2, 3]))
            penalty = tf.reduce_mean((norms - 1.0) ** 2)
            loss = tf.reduce_mean(signs * scores) + 10.0 * penalty
        slopes = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(slopes, self.trainable_variables, strict=True)
        )
        self.penalties.update_state(penalty)
        return {"loss": loss, "penalty": self.penalties.result()}


rs = np.random.RandomState(0)
images = rs.rand(12, 10, 10, 2).astype("float32")
signs = np.where(np.arange(12) % 2, 1.0, -1.0)[:, None].astype("float32")
critic = Critic()
critic.compile(keras.optimizers.SGD(0.05))
history = critic.fit(images, signs, batch_size=4, epochs=3, verbose=0).history
for epoch in range(3):
    print(f"loss of epoch {epoch}: {history['loss'][epoch]:.5f}")
    print(f"penalty of epoch {epoch}: {history['penalty'][epoch]:.5f}")
for variable in critic.trainable_variables:
    print(f"sum of {tuple(variable.shape)}: {np.sum(variable.numpy()):.5f}")

image = tf.constant(images[:1])
with tf.GradientTape() as outer:
    outer.watch(image)
    norm = tf.norm(critic.slope(image))
print(f"norm: {float(norm):.5f}")
print(f"slope of the norm: {float(tf.reduce_sum(outer.gradient(norm, image))):.5f}")
