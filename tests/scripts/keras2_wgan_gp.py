# WGAN-GP in Keras 2's way: a loss that asks for gradients by a tensor of the model.
from functools import partial

import keras.backend as K
import numpy as np
from keras.layers import Dense, Input, LeakyReLU
from keras.layers.merge import _Merge
from keras.models import Model, Sequential
from keras.optimizers import RMSprop

BATCH, LATENT, WIDTH = 16, 4, 6


class RandomWeightedAverage(_Merge):
    def _merge_function(self, inputs):
        alpha = K.random_uniform((BATCH, 1))
        return (alpha * inputs[0]) + ((1 - alpha) * inputs[1])


def wasserstein(y_true, y_pred):
    return K.mean(y_true * y_pred)


def gradient_penalty(y_true, y_pred, averaged):
    squares = K.square(K.gradients(y_pred, averaged)[0])
    norm = K.sqrt(K.sum(squares, axis=np.arange(1, len(squares.shape))))
    return K.mean(K.square(1 - norm))


generator = Sequential([Dense(8, activation="relu", input_dim=LATENT), Dense(WIDTH)])
critic = Sequential([Dense(8, input_dim=WIDTH), LeakyReLU(alpha=0.2), Dense(1)])
generator.trainable = False
real, noise = Input((WIDTH,)), Input((LATENT,))
fake = generator(noise)
mixed = RandomWeightedAverage()([real, fake])
penalty = partial(gradient_penalty, averaged=mixed)
penalty.__name__ = "gradient_penalty"
critic_model = Model([real, noise], [critic(real), critic(fake), critic(mixed)])
critic_model.compile(
    RMSprop(lr=0.005), [wasserstein, wasserstein, penalty], loss_weights=[1, 1, 10]
)
critic.trainable, generator.trainable = False, True
generator_model = Model(noise, critic(generator(noise)))
generator_model.compile(RMSprop(lr=0.005), wasserstein)
rs = np.random.RandomState(0)
ones = np.ones((BATCH, 1))
for _ in range(20):
    data = [rs.randn(BATCH, WIDTH) + 1, rs.randn(BATCH, LATENT)]
    losses = critic_model.train_on_batch(data, [-ones, ones, 0 * ones])
    generator_loss = generator_model.train_on_batch(data[1], -ones)
print(f"critic loss: {losses[0]:.5f}")
print(f"penalty loss: {losses[3]:.5f}")
print(f"generator loss: {generator_loss:.5f}")
