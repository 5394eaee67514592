# A small ResNet with squeeze-and-excitation, cosine schedule, AdamW, label smoothing.
import keras
import numpy as np
from keras import layers, regularizers


def se_block(x, ratio=4):
    channels = x.shape[-1]
    s = layers.GlobalAveragePooling2D(keepdims=True)(x)
    s = layers.Dense(channels // ratio, activation="relu")(s)
    s = layers.Dense(channels, activation="sigmoid")(s)
    return layers.Multiply()([x, s])


def residual_block(x, filters, downsample=False):
    strides = 2 if downsample else 1
    shortcut = x
    y = layers.Conv2D(
        filters,
        3,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=regularizers.l2(1e-4),
    )(x)
    y = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(y)
    y = layers.ReLU()(y)
    y = layers.Conv2D(
        filters,
        3,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=regularizers.l2(1e-4),
    )(y)
    y = layers.BatchNormalization(gamma_initializer="zeros")(y)
    y = se_block(y)
    if downsample or shortcut.shape[-1] != filters:
        shortcut = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(shortcut)
        shortcut = layers.BatchNormalization()(shortcut)
    return layers.ReLU()(layers.Add()([shortcut, y]))


inputs = keras.Input((32, 32, 3))
x = layers.Rescaling(1.0 / 255)(inputs)
x = layers.ZeroPadding2D(1)(x)
x = layers.Conv2D(8, 3, use_bias=False)(x)
for filters, downsample in [(8, False), (16, True), (32, True)]:
    x = residual_block(x, filters, downsample)
x = layers.GlobalAveragePooling2D()(x)
outputs = layers.Dense(10)(x)
model = keras.Model(inputs, outputs, name="mini_resnet")

rng = np.random.default_rng(0)
y = rng.integers(0, 10, 96)
x_train = rng.integers(0, 80, (96, 32, 32, 3)).astype("uint8")
for image, label in zip(x_train, y):
    image[3 * label : 3 * label + 3] += 150
y_train = keras.utils.to_categorical(y, 10)

steps = 3 * 96 // 32
schedule = keras.optimizers.schedules.CosineDecay(
    1e-3, steps, warmup_target=5e-3, warmup_steps=2
)
model.compile(
    optimizer=keras.optimizers.AdamW(schedule, weight_decay=1e-4, clipnorm=1.0),
    loss=keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1),
    metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(3, name="top3")],
)
history = model.fit(x_train, y_train, batch_size=32, epochs=3, verbose=2)
print(model.evaluate(x_train, y_train, verbose=0, return_dict=True))
print("final loss:", history.history["loss"][-1])
