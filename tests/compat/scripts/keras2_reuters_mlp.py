'''Bag-of-words MLP as in reuters_mlp (Keras 2 examples), on made-up sequences.'''
from __future__ import print_function
import numpy as np
import keras
from keras.models import Sequential
from keras.layers import Dense, Dropout, Activation
from keras.preprocessing.text import Tokenizer

max_words = 100
batch_size = 32
epochs = 3
rng = np.random.RandomState(0)
y_train = rng.randint(0, 6, 160)
x_train = [list(rng.randint(1 + 15 * y, 20 + 15 * y, rng.randint(3, 20))) for y in y_train]
num_classes = np.max(y_train) + 1
print('Vectorizing sequence data...')
tokenizer = Tokenizer(num_words=max_words)
x_train = tokenizer.sequences_to_matrix(x_train, mode='binary')
print('x_train shape:', x_train.shape)
y_train = keras.utils.to_categorical(y_train, num_classes)
model = Sequential()
model.add(Dense(64, input_shape=(max_words,)))
model.add(Activation('relu'))
model.add(Dropout(0.5))
model.add(Dense(num_classes))
model.add(Activation('softmax'))
model.compile(loss='categorical_crossentropy',
              optimizer='adam',
              metrics=['accuracy'])
history = model.fit(x_train, y_train,
                    batch_size=batch_size,
                    epochs=epochs,
                    verbose=1,
                    validation_split=0.1)
score = model.evaluate(x_train, y_train,
                       batch_size=batch_size, verbose=1)
print('Test score:', score[0])
print('final loss:', score[0])
