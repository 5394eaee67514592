# Inverted residuals as in MobileNetV2, then a dense block and an inception block.
import keras
import numpy as np
from keras import layers


def inverted_residual(x, expansion, stride, filters, block_id):
    prefix = f"block_{block_id}_"
    channels = x.shape[-1]
    y = layers.Conv2D(
        expansion * channels,
        1,
        padding="same",
        use_bias=False,
        activation=None,
        name=prefix + "expand",
    )(x)
    y = layers.BatchNormalization(
        epsilon=1e-3, momentum=0.999, name=prefix + "expand_BN"
    )(y)
    y = layers.ReLU(6.0, name=prefix + "expand_relu")(y)
    if stride == 2:
        y = layers.ZeroPadding2D(padding=((0, 1), (0, 1)), name=prefix + "pad")(y)
    y = layers.DepthwiseConv2D(
        3,
        strides=stride,
        use_bias=False,
        padding="same" if stride == 1 else "valid",
        name=prefix + "depthwise",
    )(y)
    y = layers.BatchNormalization(name=prefix + "depthwise_BN")(y)
    y = layers.ReLU(6.0, name=prefix + "depthwise_relu")(y)
    y = layers.Conv2D(
        filters, 1, padding="same", use_bias=False, name=prefix + "project"
    )(y)
    y = layers.BatchNormalization(name=prefix + "project_BN")(y)
    if channels == filters and stride == 1:
        return layers.Add(name=prefix + "add")([x, y])
    return y


def dense_block(x, blocks, growth_rate):
    for _ in range(blocks):
        y = layers.BatchNormalization(axis=-1)(x)
        y = layers.Activation("relu")(y)
        y = layers.Conv2D(growth_rate, 3, padding="same", use_bias=False)(y)
        x = layers.Concatenate(axis=-1)([x, y])
    x = layers.Conv2D(x.shape[-1] // 2, 1)(x)
    return layers.AveragePooling2D(2, strides=2)(x)


def inception(x):
    a = layers.Conv2D(4, 1, padding="same", activation="relu")(x)
    b = layers.Conv2D(4, (1, 3), padding="same", activation="relu")(x)
    b = layers.Conv2D(4, (3, 1), padding="same", activation="relu")(b)
    c = layers.MaxPooling2D((3, 3), strides=(1, 1), padding="same")(x)
    c = layers.Conv2D(4, 1, activation="hard_swish")(c)
    return layers.concatenate([a, b, c], axis=3, name="mixed")


img_input = keras.Input((32, 32, 3))
x = layers.Conv2D(8, 3, strides=(2, 2), padding="same", use_bias=False)(img_input)
x = layers.BatchNormalization()(x)
x = layers.Activation(keras.activations.swish)(x)
x = inverted_residual(x, 2, 1, 8, 1)
x = inverted_residual(x, 2, 2, 12, 2)
x = dense_block(x, 2, 6)
x = inception(x)
x = layers.SpatialDropout2D(0.1)(x)
x = layers.GlobalMaxPooling2D()(x)
x = layers.Dense(5, activation="softmax", use_bias=True, name="predictions")(x)
model = keras.Model(img_input, x, name="mobile")

rng = np.random.default_rng(0)
y = rng.integers(0, 5, 64)
images = rng.normal(0, 0.3, (64, 32, 32, 3)) + y[:, None, None, None] / 2
model.compile(
    keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "sparse_categorical_crossentropy",
    metrics=["sparse_categorical_accuracy"],
)
history = model.fit(images, y, epochs=4, batch_size=16, verbose=0)
print(history.history)
print("final loss:", history.history["loss"][-1])
