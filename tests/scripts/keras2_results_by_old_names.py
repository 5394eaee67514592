# Scripts from before Keras 2.3: "acc" and "lr" in histories, logs and names of files.
import glob

import numpy as np
from keras.callbacks import Callback, LearningRateScheduler, ModelCheckpoint
from keras.layers import Activation, Input, merge
from keras.layers.core import Dense, TimeDistributedDense
from keras.models import Model, Sequential, load_model
from keras.utils import np_utils

rs = np.random.RandomState(7)
x = rs.rand(60, 8)
y = np_utils.to_categorical((x.sum(1) > 4).astype(int), 2)


class Watch(Callback):
    def on_epoch_end(self, epoch, logs={}):
        if logs.get("val_acc") > 2 or logs["acc"] < 0:
            self.model.stop_training = True


model = Sequential()
model.add(Dense(12, input_dim=8, init="uniform", activation="relu"))
model.add(Dense(2, init="uniform"))
model.add(Activation("softmax"))
model.compile(loss="categorical_crossentropy", optimizer="sgd", metrics=["accuracy"])
best = ModelCheckpoint(
    "best-{epoch:02d}-{val_acc:.2f}.hdf5",
    monitor="val_acc",
    save_best_only=True,
    mode="max",
)
callbacks = [LearningRateScheduler(lambda epoch: 0.5 ** (epoch + 1)), best, Watch()]
history = model.fit(
    x,
    y,
    validation_split=0.3,
    nb_epoch=3,
    batch_size=10,
    callbacks=callbacks,
    verbose=0,
)
print(f"loss: {history.history['loss'][-1]:.5f}")
print(
    len(history.history["acc"]), len(history.history["val_acc"]), history.history["lr"]
)
loaded = load_model(sorted(glob.glob("best-*.hdf5"))[-1])
print(loaded.predict_classes(x).shape)

a, b = Input(shape=(8,)), Input(shape=(8,))
dense = Dense(4, activation="tanh")
both = merge([dense(a), dense(b)], mode="mul")
apart = merge([dense(a), dense(b)], mode=lambda pair: abs(pair[0] - pair[1]))
merged = Model(input=[a, b], output=Dense(1)(merge([both, apart], mode="concat")))
merged.compile("adam", "mse")
print(f"merged loss: {merged.train_on_batch([x, x[::-1]], y[:, 1]):.5f}")
steps = Sequential([TimeDistributedDense(3, input_shape=(4, 2))])
print(steps.output_shape)
