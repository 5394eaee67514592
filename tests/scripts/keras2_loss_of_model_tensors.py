# Losses of Keras 2 that close over tensors of the model: a VAE, and PPO's clipped ratio.
import numpy as np
from keras import backend as K
from keras import metrics
from keras.layers import Dense, Input, Lambda
from keras.models import Model
from keras.optimizers import Adam

ROWS, LATENT, BATCH = 12, 2, 16
rs = np.random.RandomState(0)
x = Input(shape=(ROWS,))
h = Dense(8, activation="relu")(x)
z_mean, z_log_var = Dense(LATENT)(h), Dense(LATENT)(h)


def sampling(args):
    mean, log_var = args
    return mean + K.exp(log_var / 2) * K.random_normal(
        shape=(BATCH, LATENT), stddev=1.0
    )


z = Lambda(sampling, output_shape=(LATENT,))([z_mean, z_log_var])
decoded = Dense(ROWS, activation="sigmoid")(Dense(8, activation="relu")(z))


def vae_loss(x, decoded):
    reconstruction = ROWS * metrics.binary_crossentropy(x, decoded)
    kl = -0.5 * K.sum(1 + z_log_var - K.square(z_mean) - K.exp(z_log_var), axis=-1)
    return reconstruction + kl


vae = Model(x, decoded)
vae.compile(optimizer="rmsprop", loss=vae_loss)
rows = rs.rand(64, ROWS)
history = vae.fit(rows, rows, epochs=2, batch_size=BATCH, verbose=0)
print(f"vae loss: {history.history['loss'][-1]:.5f}")

state, advantage, old = Input((4,)), Input((1,)), Input((2,))
actions = Dense(2, activation="softmax")(Dense(8, activation="tanh")(state))


def clipped(advantage, old):
    def loss(y_true, y_pred):
        now = K.sum(y_true * y_pred, axis=-1, keepdims=True)
        before = K.sum(y_true * old, axis=-1, keepdims=True)
        ratio = now / (before + 1e-10)
        return -K.mean(
            K.minimum(ratio * advantage, K.clip(ratio, 0.8, 1.2) * advantage)
        )

    return loss


actor = Model(inputs=[state, advantage, old], outputs=[actions])
actor.compile(optimizer=Adam(lr=1e-2), loss=[clipped(advantage, old)])
data = [rs.rand(32, 4), rs.randn(32, 1), np.full((32, 2), 0.5)]
losses = actor.fit(
    data, [np.eye(2)[rs.randint(0, 2, 32)]], epochs=3, verbose=0
).history["loss"]
print(f"policy loss: {losses[-1]:.5f}")
assert losses[-1] < losses[0]
