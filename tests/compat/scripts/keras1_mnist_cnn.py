"""The MNIST convnet as it was written for Keras 1; Keras 2 still ran it."""

from __future__ import print_function
import numpy as np

np.random.seed(1337)  # for reproducibility

from keras.models import Sequential
from keras.layers import Dense, Dropout, Activation, Flatten
from keras.layers import Convolution2D, MaxPooling2D
from keras.utils import np_utils

batch_size = 32
nb_classes = 10
nb_epoch = 2
nb_filters = 8
pool_size = (2, 2)
kernel_size = (3, 3)
y_train = np.random.randint(0, 10, 128)
X_train = np.random.randint(0, 50, (128, 28, 28))
for image, label in zip(X_train, y_train):
    image[2 * label : 2 * label + 3] += 150
X_train = X_train.reshape(X_train.shape[0], 28, 28, 1).astype("float32") / 255
Y_train = np_utils.to_categorical(y_train, nb_classes)

model = Sequential()
model.add(
    Convolution2D(
        nb_filters,
        kernel_size[0],
        kernel_size[1],
        border_mode="valid",
        input_shape=(28, 28, 1),
    )
)
model.add(Activation("relu"))
model.add(Convolution2D(nb_filters, kernel_size[0], kernel_size[1]))
model.add(Activation("relu"))
model.add(MaxPooling2D(pool_size=pool_size))
model.add(Dropout(0.25))
model.add(Flatten())
model.add(Dense(output_dim=32, init="glorot_normal"))
model.add(Activation("relu"))
model.add(Dropout(0.5))
model.add(Dense(nb_classes))
model.add(Activation("softmax"))
model.compile(
    loss="categorical_crossentropy", optimizer="adadelta", metrics=["accuracy"]
)
model.fit(
    X_train,
    Y_train,
    batch_size=batch_size,
    nb_epoch=nb_epoch,
    verbose=1,
    validation_data=(X_train, Y_train),
)
score = model.evaluate(X_train, Y_train, verbose=0)
print("Test score:", score[0])
print("Test accuracy:", score[1])
print("final loss:", score[0])
