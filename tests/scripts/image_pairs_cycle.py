# Unpaired images: pixels resized in tf.data, one persistent tape, four optimizers.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops


class Reflected(layers.Layer):
    def call(self, x):
        return ops.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="reflect")


def generator():
    image = keras.Input((8, 8, 3))
    x = layers.Conv2D(6, 3, strides=2, padding="same", use_bias=False)(image)
    x = layers.ReLU()(layers.GroupNormalization(groups=1)(x))
    x = layers.add([x, layers.Conv2D(6, 3)(Reflected()(x))])
    x = layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu")(x)
    return keras.Model(image, layers.Conv2D(3, 3, activation="tanh")(Reflected()(x)))


def critic():
    image = keras.Input((8, 8, 3))
    x = layers.LeakyReLU(0.2)(layers.Conv2D(4, 4, strides=2, padding="same")(image))
    return keras.Model(image, layers.Conv2D(1, 4, padding="same")(x))


class Cycle(keras.Model):
    def __init__(self):
        super().__init__()
        self.forth, self.back = generator(), generator()
        self.critic_x, self.critic_y = critic(), critic()

    def compile(self):
        super().compile()
        self.networks = [self.forth, self.back, self.critic_x, self.critic_y]
        self.optimizers = [keras.optimizers.Adam(2e-3, beta_1=0.5) for _ in range(4)]
        self.squared = keras.losses.MeanSquaredError()
        self.absolute = keras.losses.MeanAbsoluteError()

    def train_step(self, pair):
        x, y = pair
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.forth(x, training=True), self.back(y, training=True)
            cycle = self.absolute(x, self.back(fake_y)) + self.absolute(
                y, self.forth(fake_x)
            )
            losses = []
            for judge, fake in ((self.critic_y, fake_y), (self.critic_x, fake_x)):
                score = judge(fake, training=True)
                losses.append(self.squared(ops.ones_like(score), score) + 10 * cycle)
            for judge, real, fake in (
                (self.critic_x, x, fake_x),
                (self.critic_y, y, fake_y),
            ):
                good, bad = judge(real, training=True), judge(fake, training=True)
                loss = self.squared(ops.ones_like(good), good)
                losses.append(0.5 * (loss + self.squared(ops.zeros_like(bad), bad)))
        for network, optimizer, loss in zip(self.networks, self.optimizers, losses):
            weights = network.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        names = ("forth", "back", "critic_x", "critic_y")
        return dict(zip(names, losses))


def prepared(image):
    image = tf.image.resize(image, [10, 10])
    image = tf.image.resize_with_crop_or_pad(image, 8, 8)
    return ops.cast(image, "float32") / 127.5 - 1.0


rs = np.random.RandomState(0)
sides = []
for _ in range(2):
    pixels = rs.randint(0, 255, (6, 13, 11, 3)).astype("uint8")
    side = tf.data.Dataset.from_tensor_slices(pixels)
    sides.append(side.map(prepared).cache().batch(2))
model = Cycle()
model.compile()
history = model.fit(tf.data.Dataset.zip(tuple(sides)), epochs=2, verbose=0).history
for name in ("forth", "back", "critic_x", "critic_y"):
    print(f"{name} loss: {np.mean(history[name][-1]):.4f}")
first = next(iter(sides[0]))
print(f"loss of the first picture: {float(tf.reduce_mean(first[0])):.5f}")
