# A network that solves u'' = -sin(x): derivatives of the output by its input.
import numpy as np
import tensorflow as tf
from tensorflow import keras

model = keras.Sequential(
    [keras.Input((1,)), keras.layers.Dense(10, "tanh"), keras.layers.Dense(1)]
)
optimizer = keras.optimizers.Adam(0.01)
points = tf.constant(np.linspace(0, np.pi, 20, dtype="float32")[:, None])
ends = tf.constant([[0.0], [np.pi]])


@tf.function
def train_step(points):
    with tf.GradientTape() as weights_tape:
        with tf.GradientTape() as second_tape:
            second_tape.watch(points)
            with tf.GradientTape() as first_tape:
                first_tape.watch(points)
                u = model(points)
            du = first_tape.gradient(u, points)
        ddu = second_tape.gradient(du, points)
        loss = tf.reduce_mean(tf.square(ddu + tf.sin(points))) + tf.reduce_mean(
            tf.square(model(ends))
        )
    gradients = weights_tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for step in range(5):
    print(f"loss {step}: {float(train_step(points)):.5f}")
