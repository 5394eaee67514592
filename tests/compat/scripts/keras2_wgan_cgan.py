# Wasserstein GAN by weight clipping, then a conditional GAN (2017 style).
from __future__ import print_function, division
import numpy as np
import keras.backend as K
from keras.layers import Input, Dense, Reshape, Flatten, Dropout, multiply
from keras.layers import BatchNormalization, Activation, Embedding, ZeroPadding2D
from keras.layers import LeakyReLU, UpSampling2D, Conv2D
from keras.models import Sequential, Model
from keras.optimizers import RMSprop, Adam

img_shape = (16, 16, 1)
latent_dim = 10
n_critic = 2
clip_value = 0.01
optimizer = RMSprop(lr=0.00005)


def wasserstein_loss(y_true, y_pred):
    return K.mean(y_true * y_pred)


def build_critic():
    model = Sequential()
    model.add(Conv2D(4, kernel_size=3, strides=2, input_shape=img_shape, padding="same"))
    model.add(LeakyReLU(alpha=0.2))
    model.add(Dropout(0.25))
    model.add(Conv2D(8, kernel_size=3, strides=2, padding="same"))
    model.add(BatchNormalization(momentum=0.8))
    model.add(LeakyReLU(alpha=0.2))
    model.add(Flatten())
    model.add(Dense(1))
    img = Input(shape=img_shape)
    return Model(img, model(img))


def build_generator():
    model = Sequential()
    model.add(Dense(8 * 4 * 4, activation="relu", input_dim=latent_dim))
    model.add(Reshape((4, 4, 8)))
    model.add(UpSampling2D())
    model.add(Conv2D(8, kernel_size=4, padding="same"))
    model.add(BatchNormalization(momentum=0.8))
    model.add(Activation("relu"))
    model.add(UpSampling2D())
    model.add(Conv2D(1, kernel_size=4, padding="same"))
    model.add(Activation("tanh"))
    noise = Input(shape=(latent_dim,))
    return Model(noise, model(noise))


critic = build_critic()
critic.compile(loss=wasserstein_loss, optimizer=optimizer, metrics=['accuracy'])
generator = build_generator()
z = Input(shape=(latent_dim,))
img = generator(z)
critic.trainable = False
combined = Model(z, critic(img))
combined.compile(loss=wasserstein_loss, optimizer=optimizer, metrics=['accuracy'])

X_train = np.random.RandomState(0).rand(64, 16, 16, 1) * 2 - 1
batch_size = 16
valid = -np.ones((batch_size, 1))
fake = np.ones((batch_size, 1))
for epoch in range(3):
    for _ in range(n_critic):
        idx = np.random.randint(0, X_train.shape[0], batch_size)
        imgs = X_train[idx]
        noise = np.random.normal(0, 1, (batch_size, latent_dim))
        gen_imgs = generator.predict(noise)
        d_loss_real = critic.train_on_batch(imgs, valid)
        d_loss_fake = critic.train_on_batch(gen_imgs, fake)
        d_loss = 0.5 * np.add(d_loss_fake, d_loss_real)
        for l in critic.layers:
            weights = l.get_weights()
            weights = [np.clip(w, -clip_value, clip_value) for w in weights]
            l.set_weights(weights)
    g_loss = combined.train_on_batch(noise, valid)
    print("%d [D loss: %f] [G loss: %f]" % (epoch, 1 - d_loss[0], 1 - g_loss[0]))

num_classes = 10
noise = Input(shape=(latent_dim,))
label = Input(shape=(1,), dtype='int32')
label_embedding = Flatten()(Embedding(num_classes, latent_dim)(label))
model_input = multiply([noise, label_embedding])
body = Sequential()
body.add(Dense(32, input_dim=latent_dim))
body.add(LeakyReLU(alpha=0.2))
body.add(BatchNormalization(momentum=0.8))
body.add(Dense(np.prod(img_shape), activation='tanh'))
body.add(Reshape(img_shape))
cgenerator = Model([noise, label], body(model_input))

judge = Sequential()
judge.add(Dense(32, input_dim=np.prod(img_shape)))
judge.add(LeakyReLU(alpha=0.2))
judge.add(Dense(32))
judge.add(Dropout(0.4))
judge.add(Dense(1, activation='sigmoid'))
img = Input(shape=img_shape)
label2 = Input(shape=(1,), dtype='int32')
emb = Flatten()(Embedding(num_classes, np.prod(img_shape))(label2))
flat_img = Flatten()(img)
discriminator = Model([img, label2], judge(multiply([flat_img, emb])))
discriminator.compile(loss=['binary_crossentropy'], optimizer=Adam(0.0002, 0.5), metrics=['accuracy'])
discriminator.trainable = False
noise = Input(shape=(latent_dim,))
label = Input(shape=(1,))
valid = discriminator([cgenerator([noise, label]), label])
combined = Model([noise, label], valid)
combined.compile(loss=['binary_crossentropy'], optimizer=Adam(0.0002, 0.5))
y_train = np.random.randint(0, 10, (64, 1))
for epoch in range(3):
    idx = np.random.randint(0, 64, batch_size)
    imgs, labels = X_train[idx], y_train[idx]
    noise = np.random.normal(0, 1, (batch_size, latent_dim))
    gen_imgs = cgenerator.predict([noise, labels])
    d_loss_real = discriminator.train_on_batch([imgs, labels], np.ones((batch_size, 1)))
    d_loss_fake = discriminator.train_on_batch([gen_imgs, labels], np.zeros((batch_size, 1)))
    sampled_labels = np.random.randint(0, 10, batch_size).reshape(-1, 1)
    g_loss = combined.train_on_batch([noise, sampled_labels], np.ones((batch_size, 1)))
    print(epoch, d_loss_real[0], 100 * d_loss_real[1], g_loss)
print('final loss:', g_loss)
