# WGAN with a gradient penalty: the gradient of a gradient.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

critic = keras.Sequential(
    [keras.Input((6,)), layers.Dense(10, activation="tanh"), layers.Dense(1)],
    name="critic",
)
generator = keras.Sequential(
    [keras.Input((3,)), layers.Dense(8, activation="tanh"), layers.Dense(6)],
    name="generator",
)


class WGAN(keras.Model):
    def __init__(self, critic, generator, latent_dim=3, critic_steps=2, gp_weight=10.0):
        super().__init__()
        self.critic, self.generator = critic, generator
        self.latent_dim, self.critic_steps, self.gp_weight = (
            latent_dim,
            critic_steps,
            gp_weight,
        )

    def compile(self, c_optimizer, g_optimizer):
        super().compile()
        self.c_optimizer, self.g_optimizer = c_optimizer, g_optimizer

    def gradient_penalty(self, batch_size, real, fake):
        alpha = tf.random.uniform((batch_size, 1), 0.0, 1.0)
        interpolated = real + alpha * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(interpolated)
            scores = self.critic(interpolated, training=True)
        grads = tape.gradient(scores, interpolated)
        norm = tf.sqrt(tf.reduce_sum(tf.square(grads), axis=1) + 1e-12)
        return tf.reduce_mean((norm - 1.0) ** 2)

    def train_step(self, real):
        batch_size = tf.shape(real)[0]
        for _ in range(self.critic_steps):
            noise = tf.random.normal((batch_size, self.latent_dim))
            with tf.GradientTape() as tape:
                fake = self.generator(noise, training=True)
                cost = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(
                    self.critic(real)
                )
                penalty = self.gradient_penalty(batch_size, real, fake)
                c_loss = cost + penalty * self.gp_weight
            grads = tape.gradient(c_loss, self.critic.trainable_variables)
            self.c_optimizer.apply_gradients(
                zip(grads, self.critic.trainable_variables)
            )
        noise = tf.random.normal((batch_size, self.latent_dim))
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.critic(self.generator(noise, training=True)))
        grads = tape.gradient(g_loss, self.generator.trainable_variables)
        self.g_optimizer.apply_gradients(zip(grads, self.generator.trainable_variables))
        return {"c_loss": c_loss, "g_loss": g_loss}


x = np.random.default_rng(32).normal(size=(24, 6)).astype("float32")
wgan = WGAN(critic, generator)
wgan.compile(
    keras.optimizers.Adam(0.005, beta_1=0.5, beta_2=0.9),
    keras.optimizers.Adam(0.005, beta_1=0.5, beta_2=0.9),
)
history = wgan.fit(x, batch_size=8, epochs=2, verbose=0)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[0]:.4f}")
    print(f"second {name}: {values[1]:.4f}")
