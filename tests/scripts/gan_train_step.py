# DCGAN in miniature, with a train_step of its own, as in Keras' guide.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

LATENT = 6
discriminator = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.GlobalMaxPooling2D(),
        layers.Dense(1),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input((LATENT,)),
        layers.Dense(4 * 4 * 3),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Reshape((4, 4, 3)),
        layers.Conv2DTranspose(1, 4, strides=2, padding="same", activation="sigmoid"),
    ],
    name="generator",
)


class GAN(keras.Model):
    def __init__(self, discriminator, generator, latent_dim):
        super().__init__()
        self.discriminator = discriminator
        self.generator = generator
        self.latent_dim = latent_dim
        self.d_loss_tracker = keras.metrics.Mean(name="d_loss")
        self.g_loss_tracker = keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer, g_optimizer, loss_fn):
        super().compile()
        self.d_optimizer = d_optimizer
        self.g_optimizer = g_optimizer
        self.loss_fn = loss_fn

    @property
    def metrics(self):
        return [self.d_loss_tracker, self.g_loss_tracker]

    def train_step(self, real_images):
        batch_size = tf.shape(real_images)[0]
        noise = tf.random.normal(shape=(batch_size, self.latent_dim))
        generated = self.generator(noise)
        combined = tf.concat([generated, real_images], axis=0)
        labels = tf.concat(
            [tf.ones((batch_size, 1)), tf.zeros((batch_size, 1))], axis=0
        )
        with tf.GradientTape() as tape:
            predictions = self.discriminator(combined)
            d_loss = self.loss_fn(labels, predictions)
        grads = tape.gradient(d_loss, self.discriminator.trainable_weights)
        self.d_optimizer.apply_gradients(
            zip(grads, self.discriminator.trainable_weights)
        )

        noise = tf.random.normal(shape=(batch_size, self.latent_dim))
        with tf.GradientTape() as tape:
            predictions = self.discriminator(self.generator(noise))
            g_loss = self.loss_fn(tf.zeros((batch_size, 1)), predictions)
        grads = tape.gradient(g_loss, self.generator.trainable_weights)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_weights))
        self.d_loss_tracker.update_state(d_loss)
        self.g_loss_tracker.update_state(g_loss)
        return {m.name: m.result() for m in self.metrics}


images = np.random.default_rng(30).uniform(size=(24, 8, 8, 1)).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices(images).shuffle(24).batch(8)
gan = GAN(discriminator, generator, LATENT)
gan.compile(
    d_optimizer=keras.optimizers.Adam(learning_rate=0.003),
    g_optimizer=keras.optimizers.Adam(learning_rate=0.003),
    loss_fn=keras.losses.BinaryCrossentropy(from_logits=True),
)
history = gan.fit(dataset, epochs=2, verbose=0)
for name in ("d_loss", "g_loss"):
    print(f"{name}: {history.history[name][0]:.5f}")
    print(f"second {name}: {history.history[name][1]:.5f}")
