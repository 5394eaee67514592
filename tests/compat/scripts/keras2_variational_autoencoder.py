'''Variational autoencoder with an MLP (Keras 2 examples).'''
from __future__ import absolute_import
from __future__ import division
from __future__ import print_function

from keras.layers import Lambda, Input, Dense
from keras.models import Model
from keras.losses import mse, binary_crossentropy
from keras.utils import plot_model
from keras import backend as K
import numpy as np


def sampling(args):
    z_mean, z_log_var = args
    batch = K.shape(z_mean)[0]
    dim = K.int_shape(z_mean)[1]
    epsilon = K.random_normal(shape=(batch, dim))
    return z_mean + K.exp(0.5 * z_log_var) * epsilon


x_train = (np.random.RandomState(0).rand(128, 8, 8) > 0.7).astype('float32')
original_dim = 64
x_train = np.reshape(x_train, [-1, original_dim])
input_shape = (original_dim, )
intermediate_dim = 32
batch_size = 32
latent_dim = 2
epochs = 3

inputs = Input(shape=input_shape, name='encoder_input')
x = Dense(intermediate_dim, activation='relu')(inputs)
z_mean = Dense(latent_dim, name='z_mean')(x)
z_log_var = Dense(latent_dim, name='z_log_var')(x)
z = Lambda(sampling, output_shape=(latent_dim,), name='z')([z_mean, z_log_var])
encoder = Model(inputs, [z_mean, z_log_var, z], name='encoder')
encoder.summary()
plot_model(encoder, to_file='vae_mlp_encoder.dot', show_shapes=True)

latent_inputs = Input(shape=(latent_dim,), name='z_sampling')
x = Dense(intermediate_dim, activation='relu')(latent_inputs)
outputs = Dense(original_dim, activation='sigmoid')(x)
decoder = Model(latent_inputs, outputs, name='decoder')
decoder.summary()
outputs = decoder(encoder(inputs)[2])
vae = Model(inputs, outputs, name='vae_mlp')

reconstruction_loss = binary_crossentropy(inputs, outputs)
reconstruction_loss *= original_dim
kl_loss = 1 + z_log_var - K.square(z_mean) - K.exp(z_log_var)
kl_loss = K.sum(kl_loss, axis=-1)
kl_loss *= -0.5
vae_loss = K.mean(reconstruction_loss + kl_loss)
vae.add_loss(vae_loss)
vae.compile(optimizer='adam')
vae.summary()
history = vae.fit(x_train,
                  epochs=epochs,
                  batch_size=batch_size,
                  validation_data=(x_train, None))
vae.save_weights('vae_mlp_mnist.h5')
vae.load_weights('vae_mlp_mnist.h5')
z_mean, _, _ = encoder.predict(x_train, batch_size=batch_size)
print(z_mean.shape)
x_decoded = decoder.predict(np.array([[0.1, 0.2]]))
print(x_decoded[0].reshape(8, 8).shape)
print('final loss:', history.history['loss'][-1])
