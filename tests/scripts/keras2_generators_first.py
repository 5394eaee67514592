"""Keras 1's words, as its own example scripts had them: generators and dim_ordering."""

import numpy as np
from keras import backend as K
from keras.constraints import maxnorm
from keras.layers.advanced_activations import ELU, PReLU
from keras.layers.convolutional import Convolution2D, MaxPooling2D
from keras.layers.core import Activation, Dense, Dropout, Flatten
from keras.layers.normalization import BatchNormalization
from keras.models import Sequential, model_from_json
from keras.optimizers import SGD
from keras.regularizers import activity_l2, l2
from keras.utils import np_utils

draws = np.random.default_rng(0)
X = draws.random((32, 10, 10))
y = np_utils.to_categorical(draws.integers(0, 4, 32), 4)
if K.image_dim_ordering() == "th":
    X, input_shape = X[:, None], (1, 10, 10)
else:
    X, input_shape = X[..., None], (10, 10, 1)
model = Sequential()
model.add(
    Convolution2D(
        4,
        3,
        3,
        border_mode="valid",
        input_shape=input_shape,
        W_regularizer=l2(l=0.01),
        init="he_normal",
    )
)
model.add(BatchNormalization(mode=0, axis=-1))
model.add(Activation("relu"))
model.add(Convolution2D(4, 3, 3, subsample=(1, 1)))
model.add(PReLU())
model.add(MaxPooling2D(pool_size=(2, 2), border_mode="same"))
model.add(Flatten())
model.add(Dense(output_dim=8, activity_regularizer=activity_l2(0.001)))
model.add(ELU(alpha=1.0))
model.add(Dropout(p=0.1))
model.add(Dense(4, W_constraint=maxnorm(2)))
model.add(Activation("softmax"))
sgd = SGD(lr=0.01, decay=1e-6, momentum=0.9, nesterov=True)
model.compile(loss="categorical_crossentropy", optimizer=sgd, metrics=["accuracy"])


def batches():
    while True:
        for begin in range(0, 32, 8):
            yield X[begin : begin + 8], y[begin : begin + 8]


history = model.fit_generator(
    batches(), samples_per_epoch=32, nb_epoch=2, nb_worker=1, max_q_size=4, verbose=0
)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"epoch {epoch} loss: {loss:.5f}")
classes = model.predict_classes(X, batch_size=16)
print("classes", bool((classes == model.predict_proba(X).argmax(-1)).all()))
copy = model_from_json(model.to_json())
copy.set_weights(model.get_weights())
print("copy", bool(np.allclose(copy.predict(X), model.predict(X), atol=1e-5)))
inside = K.function(
    [model.layers[0].input, K.learning_phase()], [model.layers[7].output]
)
print("inside", inside([X, 0])[0].shape)
