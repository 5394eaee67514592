# As the examples of Keras 2 were written: its defaults make another curve.
from __future__ import print_function

import numpy as np
from keras import backend as K
from keras.layers import Conv2D, Dense, Flatten, MaxPooling2D
from keras.layers.core import Activation
from keras.models import Sequential
from keras.optimizers import Adadelta
from keras.utils import np_utils

rng = np.random.RandomState(25)
rows, cols = 8, 8
x_train = rng.uniform(size=(32, rows, cols)).astype("float32")
y_train = np_utils.to_categorical(rng.randint(0, 3, size=32), 3)
if K.image_data_format() == "channels_first":
    x_train, shape = x_train.reshape(32, 1, rows, cols), (1, rows, cols)
else:
    x_train, shape = x_train.reshape(32, rows, cols, 1), (rows, cols, 1)

model = Sequential()
model.add(Conv2D(4, kernel_size=(3, 3), activation="relu", input_shape=shape))
model.add(MaxPooling2D(pool_size=(2, 2)))
model.add(Flatten())
model.add(Dense(8))
model.add(Activation("hard_sigmoid"))
model.add(Dense(3, activation="softmax"))
model.compile(
    loss="categorical_crossentropy", optimizer=Adadelta(), metrics=["accuracy"]
)
print("rate: {:.3f}".format(float(K.get_value(model.optimizer.lr))))
history = model.fit(x_train, y_train, batch_size=8, epochs=3, verbose=0)
print("loss: {:.5f}".format(history.history["loss"][0]))
print("learns:", history.history["loss"][-1] < history.history["loss"][0])
