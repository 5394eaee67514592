# fit_generator with a Sequence, class weights, LearningRateScheduler, K.set_value, JSON.
import math
import numpy as np
import keras
from keras import backend as K
from keras.callbacks import Callback, EarlyStopping, History, LambdaCallback, LearningRateScheduler, ModelCheckpoint
from keras.layers.core import Activation, Dense, Dropout, Flatten, Permute, RepeatVector, Reshape
from keras.layers.convolutional import Conv1D, Convolution1D, MaxPooling1D
from keras.layers.normalization import BatchNormalization
from keras.layers.pooling import GlobalAveragePooling1D
from keras.models import Sequential, load_model, model_from_json
from keras.optimizers import SGD
from keras.regularizers import l1, l1_l2, l2
from keras.utils import Sequence, np_utils
from keras.utils.np_utils import to_categorical

rng = np.random.RandomState(0)
X = rng.normal(size=(90, 12, 2))
labels = (X.mean(axis=(1, 2)) > 0).astype(int) + (X[:, 0, 0] > 1)
Y = np_utils.to_categorical(labels, 3)


class Batches(Sequence):
    def __init__(self, x, y, batch_size):
        self.x, self.y = x, y
        self.batch_size = batch_size

    def __len__(self):
        return int(np.ceil(len(self.x) / float(self.batch_size)))

    def __getitem__(self, idx):
        part = slice(idx * self.batch_size, (idx + 1) * self.batch_size)
        return self.x[part], self.y[part]


class LossHistory(Callback):
    def on_train_begin(self, logs={}):
        self.losses = []

    def on_batch_end(self, batch, logs={}):
        self.losses.append(logs.get('loss'))

    def on_epoch_end(self, epoch, logs={}):
        print('lr', K.eval(self.model.optimizer.lr), 'val_acc', logs.get('val_acc'))


def step_decay(epoch):
    return 0.1 * math.pow(0.5, math.floor((1 + epoch) / 2.0))


model = Sequential()
model.add(Conv1D(8, 3, border_mode='same', input_shape=(12, 2), W_regularizer=l2(1e-4))
          if False else Conv1D(8, 3, padding='same', input_shape=(12, 2), kernel_regularizer=l2(1e-4)))
model.add(BatchNormalization())
model.add(Activation('relu'))
model.add(MaxPooling1D(2))
model.add(GlobalAveragePooling1D())
model.add(Dense(3, activation='softmax', kernel_regularizer=l1_l2(1e-5, 1e-5)))
sgd = SGD(lr=0.1, decay=1e-6, momentum=0.9, nesterov=True)
model.compile(loss='categorical_crossentropy', optimizer=sgd, metrics=['acc'])
seen = LossHistory()
history = model.fit_generator(
    generator=Batches(X, Y, 16), steps_per_epoch=6, epochs=3, verbose=2,
    validation_data=Batches(X, Y, 16), class_weight={0: 1., 1: 2., 2: 2.},
    callbacks=[seen, LearningRateScheduler(step_decay), EarlyStopping(monitor='val_acc', patience=5)],
    max_queue_size=10, workers=1, use_multiprocessing=False)
print(len(seen.losses), history.history['val_acc'])
K.set_value(model.optimizer.lr, 0.01)
print(K.get_value(model.optimizer.lr))
print(model.evaluate_generator(Batches(X, Y, 16), steps=6))
json_string = model.to_json()
open('model.json', 'w').write(json_string)
model.save_weights('model.h5', overwrite=True)
loaded = model_from_json(open('model.json').read())
loaded.load_weights('model.h5')
loaded.compile(loss='categorical_crossentropy', optimizer='rmsprop', metrics=['accuracy'])
score = loaded.evaluate(X, Y, verbose=0)
print('%s: %.2f%%' % (loaded.metrics_names[1], score[1] * 100))
model.save('whole.h5')
whole = load_model('whole.h5')
print(np.allclose(whole.predict(X), model.predict(X)))
print('final loss:', history.history['loss'][-1])
