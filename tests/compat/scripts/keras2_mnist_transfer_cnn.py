'''Transfer learning toy example (Keras 2 examples).'''
from __future__ import print_function
import datetime
import numpy as np
import keras
from keras.models import Sequential
from keras.layers import Dense, Dropout, Activation, Flatten
from keras.layers import Conv2D, MaxPooling2D
from keras import backend as K

now = datetime.datetime.now
batch_size = 32
num_classes = 5
epochs = 2
filters = 8
pool_size = 2
kernel_size = 3
input_shape = (28, 28, 1)


def train_model(model, train, num_classes):
    x_train = train[0].reshape((train[0].shape[0],) + input_shape)
    x_train = x_train.astype('float32')
    x_train /= 255
    y_train = keras.utils.to_categorical(train[1], num_classes)
    model.compile(loss='categorical_crossentropy',
                  optimizer='adadelta',
                  metrics=['accuracy'])
    t = now()
    model.fit(x_train, y_train,
              batch_size=batch_size,
              epochs=epochs,
              verbose=1,
              validation_data=(x_train, y_train))
    print('Training time: %s' % (now() - t))
    score = model.evaluate(x_train, y_train, verbose=0)
    print('Test score:', score[0])
    print('Test accuracy:', score[1])
    return score[0]


rng = np.random.RandomState(0)
y_train = rng.randint(0, 10, 128)
x_train = rng.randint(0, 50, (128, 28, 28))
for image, label in zip(x_train, y_train):
    image[2 * label:2 * label + 3] += 150
x_train_lt5 = x_train[y_train < 5]
y_train_lt5 = y_train[y_train < 5]
x_train_gte5 = x_train[y_train >= 5]
y_train_gte5 = y_train[y_train >= 5] - 5

feature_layers = [
    Conv2D(filters, kernel_size,
           padding='valid',
           input_shape=input_shape),
    Activation('relu'),
    Conv2D(filters, kernel_size),
    Activation('relu'),
    MaxPooling2D(pool_size=pool_size),
    Dropout(0.25),
    Flatten(),
]
classification_layers = [
    Dense(32),
    Activation('relu'),
    Dropout(0.5),
    Dense(num_classes),
    Activation('softmax')
]
model = Sequential(feature_layers + classification_layers)
train_model(model, (x_train_lt5, y_train_lt5), num_classes)
for l in feature_layers:
    l.trainable = False
loss = train_model(model, (x_train_gte5, y_train_gte5), num_classes)
print('final loss:', loss)
