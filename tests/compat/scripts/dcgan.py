# DCGAN with train_on_batch, in Keras 3 spelling.
import keras
import numpy as np
from keras import layers

latent_dim = 16
np.random.seed(0)

discriminator = keras.Sequential(
    [
        keras.Input(shape=(16, 16, 1)),
        layers.Conv2D(8, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(16, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Flatten(),
        layers.Dropout(0.2),
        layers.Dense(1, activation="sigmoid"),
    ],
    name="discriminator",
)
generator = keras.Sequential(
    [
        keras.Input(shape=(latent_dim,)),
        layers.Dense(4 * 4 * 8),
        layers.Reshape((4, 4, 8)),
        layers.Conv2DTranspose(8, kernel_size=4, strides=2, padding="same"),
        layers.BatchNormalization(),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2DTranspose(16, kernel_size=4, strides=2, padding="same"),
        layers.LeakyReLU(negative_slope=0.2),
        layers.Conv2D(1, kernel_size=5, padding="same", activation="sigmoid"),
    ],
    name="generator",
)
discriminator.compile(
    keras.optimizers.Adam(1e-3, beta_1=0.5), "binary_crossentropy", metrics=["accuracy"]
)
discriminator.trainable = False
z = keras.Input((latent_dim,))
gan = keras.Model(z, discriminator(generator(z)), name="gan")
gan.compile(keras.optimizers.Adam(1e-3, beta_1=0.5), "binary_crossentropy")
gan.summary()

real = np.zeros((64, 16, 16, 1), "float32")
real[:, 4:12, 4:12] = 1.0
half = 16
for step in range(12):
    noise = np.random.normal(size=(half, latent_dim))
    fake = generator.predict(noise, verbose=0)
    index = np.random.randint(0, len(real), half)
    d_real = discriminator.train_on_batch(real[index], np.ones((half, 1)))
    d_fake = discriminator.train_on_batch(fake, np.zeros((half, 1)))
    d_loss = 0.5 * np.add(d_real, d_fake)
    noise = np.random.normal(size=(2 * half, latent_dim))
    g_loss = gan.train_on_batch(noise, np.ones((2 * half, 1)))
    if step % 4 == 0:
        print(
            "%d [D loss: %f, acc.: %.2f%%] [G loss: %f]"
            % (step, d_loss[0], 100 * d_loss[1], g_loss)
        )
print("final loss:", d_loss[0])
