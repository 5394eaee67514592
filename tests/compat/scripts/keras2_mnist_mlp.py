'''Trains a simple deep NN on the MNIST dataset (Keras 2 examples).'''
from __future__ import print_function

import numpy as np
import keras
from keras.models import Sequential
from keras.layers import Dense, Dropout
from keras.optimizers import RMSprop

batch_size = 32
num_classes = 10
epochs = 3

rng = np.random.RandomState(0)
y_train = rng.randint(0, 10, 256)
x_train = rng.randint(0, 50, (256, 28, 28)).astype('uint8')
for image, label in zip(x_train, y_train):
    image[2 * label:2 * label + 3] += 150
x_train = x_train.reshape(256, 784)
x_train = x_train.astype('float32')
x_train /= 255
print(x_train.shape[0], 'train samples')
y_train = keras.utils.to_categorical(y_train, num_classes)

model = Sequential()
model.add(Dense(64, activation='relu', input_shape=(784,)))
model.add(Dropout(0.2))
model.add(Dense(64, activation='relu'))
model.add(Dropout(0.2))
model.add(Dense(num_classes, activation='softmax'))
model.summary()
model.compile(loss='categorical_crossentropy',
              optimizer=RMSprop(lr=0.001, decay=1e-6),
              metrics=['accuracy'])
history = model.fit(x_train, y_train,
                    batch_size=batch_size,
                    epochs=epochs,
                    verbose=1,
                    validation_data=(x_train, y_train))
score = model.evaluate(x_train, y_train, verbose=0)
print('Test loss:', score[0])
print('Test accuracy:', score[1])
classes = model.predict_classes(x_train[:5])
print(classes.shape)
print('final loss:', score[0])
