# A Keras 2 autoencoder with K functions in its loss, and an old metric name.
import numpy as np
from keras import backend as K
from keras.layers import Dense, Input, Lambda
from keras.models import Model
from keras.optimizers import RMSprop

rng = np.random.RandomState(56)
x = rng.rand(40, 10).astype("float32")
inputs = Input(shape=(10,))
h = Dense(6, activation="relu")(inputs)
code = Lambda(lambda t: K.l2_normalize(t, axis=-1), output_shape=(6,))(h)
outputs = Dense(10, activation="sigmoid")(code)


def loss(y_true, y_pred):
    return K.mean(K.square(y_pred - y_true), axis=-1) + 0.01 * K.sum(
        K.abs(y_pred), axis=-1
    )


model = Model(input=inputs, output=outputs)
model.compile(optimizer=RMSprop(lr=0.01), loss=loss, metrics=["mae"])
history = model.fit(x, x, nb_epoch=2, batch_size=10, verbose=0)
print("loss: %.5f" % history.history["loss"][0])
K.set_value(model.optimizer.lr, 0.5 * K.get_value(model.optimizer.lr))
print("rate: %.5f" % K.get_value(model.optimizer.lr))
history = model.fit(x, x, epochs=1, batch_size=10, verbose=0)
print("resumed loss: %.5f" % history.history["loss"][0])
