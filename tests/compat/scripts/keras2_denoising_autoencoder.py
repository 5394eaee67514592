'''Denoising autoencoder (Keras 2 examples) and the blog's autoencoders.'''
from __future__ import absolute_import, division, print_function
import keras
from keras.layers import Activation, Dense, Input
from keras.layers import Conv2D, Flatten
from keras.layers import Reshape, Conv2DTranspose
from keras.models import Model
from keras import backend as K
from keras import regularizers
import numpy as np

np.random.seed(1337)
x_train = (np.random.rand(64, 16, 16) > 0.6).astype('float32')
image_size = x_train.shape[1]
x_train = np.reshape(x_train, [-1, image_size, image_size, 1])
noise = np.random.normal(loc=0.5, scale=0.5, size=x_train.shape)
x_train_noisy = np.clip(x_train + noise, 0., 1.)
input_shape = (image_size, image_size, 1)
batch_size = 16
kernel_size = 3
latent_dim = 16
layer_filters = [8, 16]
inputs = Input(shape=input_shape, name='encoder_input')
x = inputs
for filters in layer_filters:
    x = Conv2D(filters=filters, kernel_size=kernel_size, strides=2,
               activation='relu', padding='same')(x)
shape = K.int_shape(x)
x = Flatten()(x)
latent = Dense(latent_dim, name='latent_vector')(x)
encoder = Model(inputs, latent, name='encoder')
encoder.summary()
latent_inputs = Input(shape=(latent_dim,), name='decoder_input')
x = Dense(shape[1] * shape[2] * shape[3])(latent_inputs)
x = Reshape((shape[1], shape[2], shape[3]))(x)
for filters in layer_filters[::-1]:
    x = Conv2DTranspose(filters=filters, kernel_size=kernel_size, strides=2,
                        activation='relu', padding='same')(x)
x = Conv2DTranspose(filters=1, kernel_size=kernel_size, padding='same')(x)
outputs = Activation('sigmoid', name='decoder_output')(x)
decoder = Model(latent_inputs, outputs, name='decoder')
decoder.summary()
autoencoder = Model(inputs, decoder(encoder(inputs)), name='autoencoder')
autoencoder.compile(loss='mse', optimizer='adam')
autoencoder.fit(x_train_noisy, x_train, validation_data=(x_train_noisy, x_train),
                epochs=2, batch_size=batch_size)
x_decoded = autoencoder.predict(x_train_noisy)
print(x_decoded.shape)

encoding_dim = 16
input_img = Input(shape=(256,))
encoded = Dense(encoding_dim, activation='relu',
                activity_regularizer=regularizers.l1(10e-5))(input_img)
decoded = Dense(256, activation='sigmoid')(encoded)
sparse = Model(input_img, decoded)
encoded_input = Input(shape=(encoding_dim,))
decoder_layer = sparse.layers[-1]
decoder = Model(encoded_input, decoder_layer(encoded_input))
sparse.compile(optimizer='adadelta', loss='binary_crossentropy')
flat = x_train.reshape((len(x_train), np.prod(x_train.shape[1:])))
history = sparse.fit(flat, flat, epochs=3, batch_size=16, shuffle=True, validation_data=(flat, flat))
print(decoder.predict(Model(input_img, encoded).predict(flat)).shape)
print('final loss:', history.history['loss'][-1])
