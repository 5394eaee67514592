# Residual blocks with batch normalization, and L2 on their kernels.
import keras
import numpy as np
from keras import layers, regularizers


def block(x, filters, stride=1):
    shortcut = x
    if stride != 1 or x.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=stride, use_bias=False)(x)
        shortcut = layers.BatchNormalization()(shortcut)
    x = layers.Conv2D(
        filters,
        3,
        strides=stride,
        padding="same",
        use_bias=False,
        kernel_regularizer=regularizers.L2(1e-4),
    )(x)
    x = layers.BatchNormalization()(x)
    x = layers.ReLU()(x)
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.ReLU()(layers.add([x, shortcut]))


rng = np.random.default_rng(17)
x = rng.normal(size=(24, 8, 8, 2)).astype("float32")
y = rng.integers(0, 3, size=24)
inputs = keras.Input((8, 8, 2))
h = block(block(inputs, 4), 6, stride=2)
outputs = layers.Dense(3, activation="softmax")(layers.GlobalAveragePooling2D()(h))
model = keras.Model(inputs, outputs)
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "sparse_categorical_crossentropy",
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
print(f"test loss: {model.evaluate(x, y, verbose=0)[0]:.5f}")
