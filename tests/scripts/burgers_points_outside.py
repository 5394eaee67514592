# A network that fits Burgers' equation: the points are tensors from outside of the step.
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(5)
viscosity = 0.01 / np.pi
inside = tf.constant(rng.uniform([0, -1], [1, 1], (30, 2)).astype("float32"))
start = tf.constant(
    np.stack([np.zeros(10), np.linspace(-1, 1, 10)], axis=1).astype("float32")
)
wave = -tf.sin(np.pi * start[:, 1:2])

model = tf.keras.Sequential(
    [
        tf.keras.Input((2,)),
        tf.keras.layers.Dense(8, activation="tanh"),
        tf.keras.layers.Dense(8, activation="tanh"),
        tf.keras.layers.Dense(1),
    ]
)
optimizer = tf.keras.optimizers.Adam(1e-2)


def residual():
    with tf.GradientTape(persistent=True) as second:
        second.watch(inside)
        with tf.GradientTape() as first:
            first.watch(inside)
            u = model(inside)
        slope = first.gradient(u, inside)
        along_x = slope[:, 1:2]
    curvature = second.gradient(along_x, inside)[:, 1:2]
    return slope[:, 0:1] + u * along_x - viscosity * curvature


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(residual()))
        loss += tf.reduce_mean(tf.square(model(start) - wave))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for step in range(4):
    print(f"loss of step {step}: {float(train_step()):.5f}")
print(f"residual outside of a step: {float(tf.norm(residual())):.4f}")


def slopes_of_row(row):
    with tf.GradientTape() as tape:
        square = tf.reduce_sum(model(row[None]) ** 2)
    return tape.gradient(square, model.trainable_variables)


for part in tf.vectorized_map(slopes_of_row, start):
    print(f"slopes {tuple(part.shape)}: {float(tf.norm(part)):.4f}")
