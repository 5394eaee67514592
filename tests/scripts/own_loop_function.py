# The same loop, its step compiled by tf.function.
import numpy as np
import tensorflow as tf

rng = np.random.default_rng(7)
x = rng.normal(size=(40, 4)).astype("float32")
y = (x @ np.array([[1.0], [-2.0], [0.5], [3.0]], "float32")).astype("float32")
model = tf.keras.Sequential(
    [tf.keras.Input((4,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)]
)
optimizer = tf.keras.optimizers.Adam(0.02)
mean = tf.keras.metrics.Mean()


@tf.function
def train_step(x_batch, y_batch):
    with tf.GradientTape() as tape:
        error = model(x_batch, training=True) - y_batch
        loss = tf.reduce_mean(tf.square(error))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


for epoch in range(3):
    mean.reset_state()
    for start in range(0, 40, 10):
        mean.update_state(train_step(x[start : start + 10], y[start : start + 10]))
    print(f"loss {epoch}: {float(mean.result()):.5f}")
