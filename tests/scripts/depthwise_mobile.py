# Depthwise separable blocks with relu6 and a head that drops channels.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(44)
x = rng.normal(size=(20, 12, 12, 3)).astype("float32")
y = keras.utils.to_categorical(rng.integers(0, 4, size=20), 4)


def separable(h, filters, stride):
    h = layers.DepthwiseConv2D(3, strides=stride, padding="same", use_bias=False)(h)
    h = layers.BatchNormalization(epsilon=1e-3)(h)
    h = layers.ReLU(max_value=6.0)(h)
    h = layers.Conv2D(filters, 1, use_bias=False)(h)
    h = layers.BatchNormalization(epsilon=1e-3)(h)
    return layers.Activation("relu6")(h)


inputs = keras.Input((12, 12, 3))
h = layers.ZeroPadding2D(((0, 1), (0, 1)))(inputs)
h = layers.Conv2D(4, 3, strides=2, activation="relu6")(h)
h = separable(h, 6, 1)
h = separable(h, 8, 2)
h = layers.GlobalAveragePooling2D(keepdims=True)(h)
h = layers.Conv2D(4, 1)(h)
outputs = layers.Softmax()(layers.Reshape((4,))(h))
model = keras.Model(inputs, outputs)
model.compile(
    keras.optimizers.RMSprop(0.01, momentum=0.9),
    keras.losses.CategoricalCrossentropy(label_smoothing=0.1),
    metrics=["accuracy"],
)
history = model.fit(x, y, batch_size=5, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.4f}")
print(f"parameters: {float(model.count_params()):.1f}")
