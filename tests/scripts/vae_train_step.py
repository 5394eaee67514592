# A variational autoencoder whose train_step adds the two terms of its loss.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Sampling(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.seed_generator = keras.random.SeedGenerator(1337)

    def call(self, inputs):
        mean, log_var = inputs
        shape = (ops.shape(mean)[0], ops.shape(mean)[1])
        epsilon = keras.random.normal(shape=shape, seed=self.seed_generator)
        return mean + ops.exp(0.5 * log_var) * epsilon


encoder_inputs = keras.Input(shape=(12,))
h = layers.Dense(10, activation="relu")(encoder_inputs)
z_mean = layers.Dense(2, name="z_mean")(h)
z_log_var = layers.Dense(2, name="z_log_var")(h)
z = Sampling()([z_mean, z_log_var])
encoder = keras.Model(encoder_inputs, [z_mean, z_log_var, z], name="encoder")
latent = keras.Input(shape=(2,))
decoded = layers.Dense(12, activation="sigmoid")(
    layers.Dense(8, activation="relu")(latent)
)
decoder = keras.Model(latent, decoded, name="decoder")


class VAE(keras.Model):
    def __init__(self, encoder, decoder, **kwargs):
        super().__init__(**kwargs)
        self.encoder, self.decoder = encoder, decoder
        self.total = keras.metrics.Mean(name="total_loss")
        self.kl = keras.metrics.Mean(name="kl_loss")

    @property
    def metrics(self):
        return [self.total, self.kl]

    def train_step(self, data):
        with tf.GradientTape() as tape:
            mean, log_var, z = self.encoder(data)
            reconstruction = self.decoder(z)
            reconstruction_loss = ops.mean(
                12 * keras.losses.binary_crossentropy(data, reconstruction)
            )
            kl = -0.5 * (1 + log_var - ops.square(mean) - ops.exp(log_var))
            kl_loss = ops.mean(ops.sum(kl, axis=1))
            total_loss = reconstruction_loss + kl_loss
        grads = tape.gradient(total_loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(grads, self.trainable_weights))
        self.total.update_state(total_loss)
        self.kl.update_state(kl_loss)
        return {"loss": self.total.result(), "kl_loss": self.kl.result()}


x = np.random.default_rng(31).uniform(size=(40, 12)).astype("float32")
vae = VAE(encoder, decoder)
vae.compile(optimizer=keras.optimizers.Adam(0.01))
history = vae.fit(x, epochs=2, batch_size=10, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
print(f"kl: {history.history['kl_loss'][0]:.5f}")
