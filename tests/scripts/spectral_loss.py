# A denoiser of sounds that learns from its spectrum: tf.signal in layers and losses.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

draws = np.random.default_rng(0)
time = np.arange(64, dtype="float32")
clean = np.sin(time * draws.uniform(0.1, 1, (12, 1))).astype("float32")
noisy = clean + draws.normal(0, 0.1, clean.shape).astype("float32")


class FourierMixing(layers.Layer):
    def __init__(self):
        super().__init__()
        self.norm = layers.LayerNormalization()

    def call(self, inputs):
        mixed = tf.signal.fft2d(tf.cast(inputs, tf.complex64))
        return self.norm(inputs + tf.math.real(mixed))


def spectral_loss(y_true, y_pred):
    true, pred = (tf.signal.stft(y, 16, 8) for y in (y_true, y_pred))
    convergence = tf.norm(tf.abs(true) - tf.abs(pred)) / tf.norm(tf.abs(true))
    angle = tf.math.real(true * tf.math.conj(pred))
    return tf.reduce_mean([convergence, -0.01 * tf.reduce_mean(angle)])


def build():
    inputs = keras.Input((64,))
    frames = layers.Reshape((8, 8))(inputs)
    x = layers.Dense(8, activation="gelu")(FourierMixing()(frames))
    return keras.Model(inputs, inputs + layers.Flatten()(x))


model = build()
model.compile("adam", spectral_loss)
history = model.fit(noisy, clean, batch_size=4, epochs=2, verbose=0)
print(f"first loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")

own = build()
optimizer = keras.optimizers.SGD(0.1)
for rows in tf.data.Dataset.from_tensor_slices((noisy, clean)).batch(6):
    with tf.GradientTape() as tape:
        loss = spectral_loss(rows[1], own(rows[0], training=True))
    grads = tape.gradient(loss, own.trainable_variables)
    optimizer.apply_gradients(zip(grads, own.trainable_variables))
    print(f"loss and slope at {int(optimizer.iterations)}: {loss:.5f}")
    print(f"slope at {int(optimizer.iterations)}: {tf.linalg.global_norm(grads):.4f}")

loud = clean[tf.abs(clean[:, 0] - clean[:, 5]) > 0.5]
print("rows that begin steeply:", loud.shape)
