# Autoregressive pixels: layers that write over their own kernels in every call.
import keras
import numpy as np
from keras import layers, ops


class MaskedConv(layers.Layer):
    def __init__(self, sees_itself, **options):
        super().__init__()
        self.sees_itself = sees_itself
        self.conv = layers.Conv2D(padding="same", **options)

    def build(self, input_shape):
        self.conv.build(input_shape)
        rows, columns, *_ = self.conv.kernel.shape
        self.mask = np.zeros(self.conv.kernel.shape)
        self.mask[: rows // 2] = 1.0
        self.mask[rows // 2, : columns // 2 + int(self.sees_itself)] = 1.0

    def call(self, x):
        self.conv.kernel.assign(self.conv.kernel * self.mask)
        return self.conv(x)


class Residual(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.before = layers.Conv2D(width // 2, 1, activation="relu")
        self.masked = MaskedConv(
            True, filters=width // 2, kernel_size=3, activation="relu"
        )
        self.after = layers.Conv2D(width, 1)

    def call(self, x):
        return layers.add([x, self.after(self.masked(self.before(x)))])


images = (np.random.RandomState(0).rand(16, 6, 6, 1) > 0.6).astype(int)
inputs = keras.Input((6, 6, 1), batch_size=8)
x = MaskedConv(False, filters=6, kernel_size=5, activation="relu")(inputs)
x = Residual(6)(Residual(6)(x))
model = keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(0.005), "binary_crossentropy")
history = model.fit(images, images, batch_size=8, epochs=2, verbose=0).history
print(f"loss: {history['loss'][-1]:.5f}")
pixels = np.zeros((8, 6, 6, 1))
for column in range(3):
    chances = model.predict(pixels, verbose=0)[:, 0, column]
    pixels[:, 0, column] = ops.ceil(chances - 0.5)
print(f"loss of ink: {chances.mean():.5f}")
kernel = ops.convert_to_numpy(model.layers[1].conv.kernel)
print(
    f"loss of kernels: {np.abs(kernel).sum():.5f}", np.count_nonzero(kernel[:, :, 0, 0])
)
