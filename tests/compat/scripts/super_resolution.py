# Sub-pixel super-resolution with a callback that measures PSNR.
import math

import keras
import numpy as np
from keras import layers, ops


class DepthToSpace(layers.Layer):
    def __init__(self, block_size):
        super().__init__()
        self.block_size = block_size

    def call(self, input):
        batch, height, width, depth = ops.shape(input)
        depth = depth // (self.block_size**2)
        x = ops.reshape(
            input, [batch, height, width, self.block_size, self.block_size, depth]
        )
        x = ops.transpose(x, [0, 1, 3, 2, 4, 5])
        x = ops.reshape(
            x, [batch, height * self.block_size, width * self.block_size, depth]
        )
        return x


def get_model(upscale_factor=2, channels=1):
    conv_args = {
        "activation": "relu",
        "kernel_initializer": "orthogonal",
        "padding": "same",
    }
    inputs = keras.Input(shape=(None, None, channels))
    x = layers.Conv2D(16, 5, **conv_args)(inputs)
    x = layers.Conv2D(8, 3, **conv_args)(x)
    x = layers.Conv2D(channels * (upscale_factor**2), 3, **conv_args)(x)
    outputs = DepthToSpace(upscale_factor)(x)
    return keras.Model(inputs, outputs)


class ESPCNCallback(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.psnr = []

    def on_epoch_end(self, epoch, logs=None):
        print("Mean PSNR for epoch: %.2f" % (np.mean(self.psnr)))

    def on_test_batch_end(self, batch, logs=None):
        self.psnr.append(10 * math.log10(1 / logs["loss"]))


rng = np.random.default_rng(0)
big = rng.random((32, 8, 8, 1)).repeat(4, axis=1).repeat(4, axis=2).astype("float32")
small = big[:, ::2, ::2]
early_stopping_callback = keras.callbacks.EarlyStopping(monitor="loss", patience=10)
checkpoint = keras.callbacks.ModelCheckpoint(
    filepath="checkpoint.keras",
    save_weights_only=False,
    monitor="loss",
    mode="min",
    save_best_only=True,
)
model = get_model()
model.summary()
model.compile(
    optimizer=keras.optimizers.Adam(learning_rate=0.003),
    loss=keras.losses.MeanSquaredError(),
)
history = model.fit(
    small,
    big,
    epochs=4,
    batch_size=8,
    callbacks=[ESPCNCallback(), early_stopping_callback, checkpoint],
    validation_data=(small, big),
    verbose=2,
)
print(model.predict(rng.random((1, 10, 14, 1))).shape)
print("final loss:", history.history["loss"][-1])
