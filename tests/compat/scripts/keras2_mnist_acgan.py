'''Auxiliary classifier GAN (Keras 2 examples).'''
from __future__ import print_function
from collections import defaultdict
import numpy as np
from keras import layers
from keras.layers import Input, Dense, Reshape, Flatten, Embedding, Dropout
from keras.layers import BatchNormalization
from keras.layers.advanced_activations import LeakyReLU
from keras.layers.convolutional import Conv2DTranspose, Conv2D
from keras.models import Sequential, Model
from keras.optimizers import Adam
from keras.utils.generic_utils import Progbar

np.random.seed(1337)
num_classes = 10


def build_generator(latent_size):
    cnn = Sequential()
    cnn.add(Dense(3 * 3 * 16, input_dim=latent_size, activation='relu'))
    cnn.add(Reshape((3, 3, 16)))
    cnn.add(Conv2DTranspose(8, 5, strides=1, padding='valid',
                            activation='relu',
                            kernel_initializer='glorot_normal'))
    cnn.add(BatchNormalization())
    cnn.add(Conv2DTranspose(8, 5, strides=2, padding='same',
                            activation='relu',
                            kernel_initializer='glorot_normal'))
    cnn.add(BatchNormalization())
    cnn.add(Conv2DTranspose(1, 5, strides=2, padding='same',
                            activation='tanh',
                            kernel_initializer='glorot_normal'))
    latent = Input(shape=(latent_size, ))
    image_class = Input(shape=(1,), dtype='int32')
    cls = Embedding(num_classes, latent_size,
                    embeddings_initializer='glorot_normal')(image_class)
    cls = Flatten()(cls)
    h = layers.multiply([latent, cls])
    fake_image = cnn(h)
    return Model([latent, image_class], fake_image)


def build_discriminator():
    cnn = Sequential()
    cnn.add(Conv2D(8, 3, padding='same', strides=2,
                   input_shape=(28, 28, 1)))
    cnn.add(LeakyReLU(0.2))
    cnn.add(Dropout(0.3))
    cnn.add(Conv2D(16, 3, padding='same', strides=2))
    cnn.add(LeakyReLU(0.2))
    cnn.add(Dropout(0.3))
    cnn.add(Flatten())
    image = Input(shape=(28, 28, 1))
    features = cnn(image)
    fake = Dense(1, activation='sigmoid', name='generation')(features)
    aux = Dense(num_classes, activation='softmax', name='auxiliary')(features)
    return Model(image, [fake, aux])


epochs = 2
batch_size = 16
latent_size = 12
adam_lr = 0.0002
adam_beta_1 = 0.5

discriminator = build_discriminator()
discriminator.compile(
    optimizer=Adam(learning_rate=adam_lr, beta_1=adam_beta_1),
    loss=['binary_crossentropy', 'sparse_categorical_crossentropy'])
discriminator.summary()
generator = build_generator(latent_size)
latent = Input(shape=(latent_size, ))
image_class = Input(shape=(1,), dtype='int32')
fake = generator([latent, image_class])
discriminator.trainable = False
fake, aux = discriminator(fake)
combined = Model([latent, image_class], [fake, aux])
combined.compile(
    optimizer=Adam(learning_rate=adam_lr, beta_1=adam_beta_1),
    loss=['binary_crossentropy', 'sparse_categorical_crossentropy'])
combined.summary()

x_train = np.random.randint(0, 255, (64, 28, 28))
y_train = np.random.randint(0, 10, 64)
x_train = (x_train.astype(np.float32) - 127.5) / 127.5
x_train = np.expand_dims(x_train, axis=-1)
num_train = x_train.shape[0]
train_history = defaultdict(list)

for epoch in range(1, epochs + 1):
    print('Epoch {}/{}'.format(epoch, epochs))
    num_batches = int(np.ceil(x_train.shape[0] / float(batch_size)))
    progress_bar = Progbar(target=num_batches)
    epoch_gen_loss = []
    epoch_disc_loss = []
    for index in range(num_batches):
        image_batch = x_train[index * batch_size:(index + 1) * batch_size]
        label_batch = y_train[index * batch_size:(index + 1) * batch_size]
        noise = np.random.uniform(-1, 1, (len(image_batch), latent_size))
        sampled_labels = np.random.randint(0, num_classes, len(image_batch))
        generated_images = generator.predict(
            [noise, sampled_labels.reshape((-1, 1))], verbose=0)
        x = np.concatenate((image_batch, generated_images))
        soft_zero, soft_one = 0, 0.95
        y = np.array([soft_one] * len(image_batch) + [soft_zero] * len(image_batch))
        aux_y = np.concatenate((label_batch, sampled_labels), axis=0)
        disc_sample_weight = [np.ones(2 * len(image_batch)),
                              np.concatenate((np.ones(len(image_batch)) * 2,
                                              np.zeros(len(image_batch))))]
        epoch_disc_loss.append(discriminator.train_on_batch(
            x, [y, aux_y], sample_weight=disc_sample_weight))
        noise = np.random.uniform(-1, 1, (2 * len(image_batch), latent_size))
        sampled_labels = np.random.randint(0, num_classes, 2 * len(image_batch))
        trick = np.ones(2 * len(image_batch)) * soft_one
        epoch_gen_loss.append(combined.train_on_batch(
            [noise, sampled_labels.reshape((-1, 1))],
            [trick, sampled_labels]))
        progress_bar.update(index + 1)
    discriminator_train_loss = np.mean(np.array(epoch_disc_loss), axis=0)
    generator_train_loss = np.mean(np.array(epoch_gen_loss), axis=0)
    train_history['generator']['train'] if False else None
    print('{0:<16s} | {1:6s} | {2:15s} | {3:5s}'.format(
        'component', *discriminator.metrics_names))
    ROW_FMT = '{0:<16s} | {1:<6.2f} | {2:<15.2f} | {3:<5.2f}'
    print(ROW_FMT.format('generator (train)', *generator_train_loss))
    print(ROW_FMT.format('discriminator (train)', *discriminator_train_loss))
    generator.save_weights(
        'params_generator_epoch_{0:03d}.hdf5'.format(epoch), True)
    discriminator.save_weights(
        'params_discriminator_epoch_{0:03d}.hdf5'.format(epoch), True)
print('final loss:', discriminator_train_loss[0])
