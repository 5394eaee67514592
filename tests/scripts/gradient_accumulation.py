# Gradients of several batches are added up before a step is taken.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(54)
x = rng.normal(size=(32, 5)).astype("float32")
y = rng.normal(size=(32, 2)).astype("float32")
model = keras.Sequential(
    [keras.Input((5,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(2)]
)
optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
sums = [
    tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables
]
ACCUMULATE = 4

for epoch in range(2):
    losses = []
    for step, (xb, yb) in enumerate(
        tf.data.Dataset.from_tensor_slices((x, y)).batch(4)
    ):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(yb - model(xb, training=True)))
        for total, gradient in zip(
            sums, tape.gradient(loss, model.trainable_variables)
        ):
            total.assign_add(gradient / ACCUMULATE)
        if (step + 1) % ACCUMULATE == 0:
            optimizer.apply_gradients(zip(sums, model.trainable_variables))
            for total in sums:
                total.assign(tf.zeros_like(total))
        losses.append(float(loss))
    print(f"loss {epoch}: {np.mean(losses):.5f}")
