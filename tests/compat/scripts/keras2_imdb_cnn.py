'''Convolution1D for text classification (Keras 2 examples), on made-up sequences.'''
from __future__ import print_function
import numpy as np
from keras.preprocessing import sequence
from keras.models import Sequential
from keras.layers import Dense, Dropout, Activation
from keras.layers import Embedding
from keras.layers import Conv1D, GlobalMaxPooling1D, GlobalAveragePooling1D

max_features = 200
maxlen = 40
batch_size = 32
embedding_dims = 10
filters = 16
kernel_size = 3
hidden_dims = 16
epochs = 2
rng = np.random.RandomState(0)
y_train = rng.randint(0, 2, 128)
x_train = np.array([list(rng.randint(1 + 90 * y, 110 + 90 * y, rng.randint(5, 60)))
                    for y in y_train], dtype=object)
x_train = sequence.pad_sequences(x_train, maxlen=maxlen)
print('Build model...')
model = Sequential()
model.add(Embedding(max_features,
                    embedding_dims,
                    input_length=maxlen))
model.add(Dropout(0.2))
model.add(Conv1D(filters,
                 kernel_size,
                 padding='valid',
                 activation='relu',
                 strides=1))
model.add(GlobalMaxPooling1D())
model.add(Dense(hidden_dims))
model.add(Dropout(0.2))
model.add(Activation('relu'))
model.add(Dense(1))
model.add(Activation('sigmoid'))
model.compile(loss='binary_crossentropy',
              optimizer='adam',
              metrics=['accuracy'])
model.fit(x_train, y_train,
          batch_size=batch_size,
          epochs=epochs,
          validation_data=(x_train, y_train))

fasttext = Sequential()
fasttext.add(Embedding(max_features, embedding_dims, input_length=maxlen))
fasttext.add(GlobalAveragePooling1D())
fasttext.add(Dense(1, activation='sigmoid'))
fasttext.compile(loss='binary_crossentropy', optimizer='adam', metrics=['accuracy'])
history = fasttext.fit(x_train, y_train, batch_size=batch_size, epochs=4,
                       validation_data=(x_train, y_train))
print('final loss:', history.history['loss'][-1])
