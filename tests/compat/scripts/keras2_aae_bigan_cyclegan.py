# Adversarial autoencoder, BiGAN and a CycleGAN-like generator (2017 style).
from __future__ import print_function, division
import numpy as np
import keras.backend as K
from keras.layers import Input, Dense, Reshape, Flatten, Dropout, Lambda, Concatenate, concatenate
from keras.layers import BatchNormalization, GaussianNoise
from keras.layers.advanced_activations import LeakyReLU
from keras.layers.convolutional import UpSampling2D, Conv2D, Conv2DTranspose
from keras.layers.merge import _Merge
from keras.models import Sequential, Model
from keras.optimizers import Adam

img_shape = (16, 16, 1)
latent_dim = 6
optimizer = Adam(0.0002, 0.5)


def build_encoder():
    img = Input(shape=img_shape)
    h = Flatten()(img)
    h = Dense(32)(h)
    h = LeakyReLU(alpha=0.2)(h)
    mu = Dense(latent_dim)(h)
    log_var = Dense(latent_dim)(h)
    latent_repr = Lambda(
        lambda p: p[0] + K.random_normal(K.shape(p[0])) * K.exp(p[1] / 2),
        output_shape=lambda p: p[0])([mu, log_var])
    return Model(img, latent_repr)


def build_decoder():
    model = Sequential()
    model.add(Dense(32, input_dim=latent_dim))
    model.add(LeakyReLU(alpha=0.2))
    model.add(Dense(np.prod(img_shape), activation='tanh'))
    model.add(Reshape(img_shape))
    z = Input(shape=(latent_dim,))
    return Model(z, model(z))


def build_discriminator():
    model = Sequential()
    model.add(Dense(16, input_dim=latent_dim))
    model.add(LeakyReLU(alpha=0.2))
    model.add(Dense(1, activation="sigmoid"))
    encoded_repr = Input(shape=(latent_dim, ))
    return Model(encoded_repr, model(encoded_repr))


discriminator = build_discriminator()
discriminator.compile(loss='binary_crossentropy', optimizer=optimizer, metrics=['accuracy'])
encoder = build_encoder()
decoder = build_decoder()
img = Input(shape=img_shape)
encoded_repr = encoder(img)
reconstructed_img = decoder(encoded_repr)
discriminator.trainable = False
validity = discriminator(encoded_repr)
adversarial_autoencoder = Model(img, [reconstructed_img, validity])
adversarial_autoencoder.compile(loss=['mse', 'binary_crossentropy'],
                                loss_weights=[0.999, 0.001],
                                optimizer=optimizer)
X_train = np.random.RandomState(0).rand(64, 16, 16, 1) * 2 - 1
batch_size = 16
valid = np.ones((batch_size, 1))
fake = np.zeros((batch_size, 1))
for epoch in range(4):
    imgs = X_train[np.random.randint(0, X_train.shape[0], batch_size)]
    latent_fake = encoder.predict(imgs)
    latent_real = np.random.normal(size=(batch_size, latent_dim))
    d_loss_real = discriminator.train_on_batch(latent_real, valid)
    d_loss_fake = discriminator.train_on_batch(latent_fake, fake)
    d_loss = 0.5 * np.add(d_loss_real, d_loss_fake)
    g_loss = adversarial_autoencoder.train_on_batch(imgs, [imgs, valid])
    print("%d [D loss: %f, acc: %.2f%%] [G loss: %f, mse: %f]"
          % (epoch, d_loss[0], 100 * d_loss[1], g_loss[0], g_loss[1]))

# BiGAN's discriminator on (z, image)
z = Input(shape=(latent_dim, ))
img = Input(shape=img_shape)
d_in = concatenate([z, Flatten()(img)])
model = Dense(32)(d_in)
model = LeakyReLU(alpha=0.2)(model)
model = Dropout(0.5)(model)
validity = Dense(1, activation="sigmoid")(model)
bigan = Model([z, img], validity)
bigan.compile(loss=['binary_crossentropy'], optimizer=optimizer, metrics=['accuracy'])
bigan.trainable = False
z = Input(shape=(latent_dim, ))
img_ = decoder(z)
fake_v = bigan([z, img_])
img = Input(shape=img_shape)
z_ = encoder(img)
valid_v = bigan([z_, img])
bigan_generator = Model([z, img], [fake_v, valid_v])
bigan_generator.compile(loss=['binary_crossentropy', 'binary_crossentropy'], optimizer=optimizer)
z = np.random.normal(size=(batch_size, latent_dim))
imgs_ = decoder.predict(z)
print(bigan.train_on_batch([z, imgs_], fake))
print(bigan_generator.train_on_batch([z, imgs], [valid, fake]))


# CycleGAN: U-Net generator
def conv2d(layer_input, filters, f_size=4):
    d = Conv2D(filters, kernel_size=f_size, strides=2, padding='same')(layer_input)
    d = LeakyReLU(alpha=0.2)(d)
    d = BatchNormalization(momentum=0.8)(d)
    return d


def deconv2d(layer_input, skip_input, filters, f_size=4, dropout_rate=0):
    u = UpSampling2D(size=2)(layer_input)
    u = Conv2D(filters, kernel_size=f_size, strides=1, padding='same', activation='relu')(u)
    if dropout_rate:
        u = Dropout(dropout_rate)(u)
    u = BatchNormalization(momentum=0.8)(u)
    u = Concatenate()([u, skip_input])
    return u


def generator():
    d0 = Input(shape=img_shape)
    d1 = conv2d(d0, 4)
    d2 = conv2d(d1, 8)
    u1 = deconv2d(d2, d1, 8, dropout_rate=0.1)
    u2 = Conv2DTranspose(4, 4, strides=2, padding='same')(u1)
    output_img = Conv2D(1, kernel_size=4, strides=1, padding='same', activation='tanh')(u2)
    return Model(d0, output_img)


g_AB, g_BA = generator(), generator()
d_in = Input(shape=img_shape)
patch = Conv2D(1, kernel_size=4, strides=1, padding='same')(conv2d(GaussianNoise(0.1)(d_in), 4))
d_A = Model(d_in, patch)
d_A.compile(loss='mse', optimizer=Adam(0.0002, 0.5), metrics=['accuracy'])
d_A.trainable = False
img_A = Input(shape=img_shape)
img_B = Input(shape=img_shape)
fake_B, fake_A = g_AB(img_A), g_BA(img_B)
reconstr_A, reconstr_B = g_BA(fake_B), g_AB(fake_A)
combined = Model(inputs=[img_A, img_B],
                 outputs=[d_A(fake_A), reconstr_A, reconstr_B, g_BA(img_A)])
combined.compile(loss=['mse', 'mae', 'mae', 'mae'], loss_weights=[1, 10, 10, 1.0],
                 optimizer=Adam(0.0002, 0.5))
patches = np.ones((batch_size, 8, 8, 1))
for step in range(3):
    d_loss = d_A.train_on_batch(imgs, patches)
    g_loss = combined.train_on_batch([imgs, imgs[::-1]], [patches, imgs, imgs[::-1], imgs])
    print("[D loss: %f, acc: %3d%%] [G loss: %05f, recon: %05f]"
          % (d_loss[0], 100 * d_loss[1], g_loss[0], np.mean(g_loss[2:4])))
print('final loss:', g_loss[0])
