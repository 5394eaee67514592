'''How to write custom layers for Keras (Keras 2 examples).'''
from __future__ import print_function
import numpy as np
import keras
from keras.models import Sequential
from keras import layers
from keras import backend as K
from keras.engine.topology import Layer


class Antirectifier(layers.Layer):
    def compute_output_shape(self, input_shape):
        shape = list(input_shape)
        assert len(shape) == 2
        shape[-1] *= 2
        return tuple(shape)

    def call(self, inputs):
        inputs -= K.mean(inputs, axis=1, keepdims=True)
        inputs = K.l2_normalize(inputs, axis=1)
        pos = K.relu(inputs)
        neg = K.relu(-inputs)
        return K.concatenate([pos, neg], axis=1)


class MyLayer(Layer):
    def __init__(self, output_dim, **kwargs):
        self.output_dim = output_dim
        super(MyLayer, self).__init__(**kwargs)

    def build(self, input_shape):
        self.kernel = self.add_weight(name='kernel',
                                      shape=(input_shape[1], self.output_dim),
                                      initializer='uniform',
                                      trainable=True)
        super(MyLayer, self).build(input_shape)

    def call(self, x):
        return K.dot(x, self.kernel)

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.output_dim)


rng = np.random.RandomState(0)
y_train = rng.randint(0, 10, 160)
x_train = rng.rand(160, 64).astype('float32')
x_train[np.arange(160), y_train] += 2
y_train = keras.utils.to_categorical(y_train, 10)
model = Sequential()
model.add(layers.Dense(32, input_shape=(64,)))
model.add(Antirectifier())
model.add(layers.Dropout(0.1))
model.add(MyLayer(24))
model.add(Antirectifier())
model.add(layers.Dropout(0.1))
model.add(layers.Dense(10))
model.add(layers.Activation('softmax'))
model.compile(loss='categorical_crossentropy',
              optimizer='rmsprop',
              metrics=['accuracy'])
history = model.fit(x_train, y_train, batch_size=16, epochs=4, verbose=1,
                    validation_data=(x_train, y_train))
print('final loss:', history.history['loss'][-1])
