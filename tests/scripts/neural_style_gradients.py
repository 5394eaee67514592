# Gradients with respect to an image: the activation of a filter is raised.
import keras
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(37)
network = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(3, 3, activation="relu", name="first"),
        keras.layers.Conv2D(2, 3, name="second"),
    ]
)
extractor = keras.Model(network.inputs, network.get_layer("second").output)


def compute_loss(image, filter_index):
    activation = extractor(image)
    return tf.reduce_mean(activation[:, 1:-1, 1:-1, filter_index])


def ascent_step(image, filter_index, rate):
    with tf.GradientTape() as tape:
        tape.watch(image)
        loss = compute_loss(image, filter_index)
    grads = tf.math.l2_normalize(tape.gradient(loss, image))
    return loss, image + rate * grads


image = tf.convert_to_tensor(rng.uniform(size=(1, 8, 8, 1)).astype("float32"))
for step in range(4):
    loss, image = ascent_step(image, 1, 0.5)
    print(f"loss {step}: {float(loss):.5f}")
print(f"mean: {float(tf.reduce_mean(image)):.5f}")
