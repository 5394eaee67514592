# Layers called for single rows: in map, scan and loops, with gradients of their weights.
import numpy as np
import tensorflow as tf
from keras import layers, ops

rows = np.random.RandomState(0).rand(4, 3).astype("float32")
step, lasting = layers.Dense(2, "tanh"), layers.LSTM(2)
for layer, shape in ((step, (None, 3)), (lasting, (None, 3, 1))):
    layer.build(shape)


def one(row):
    return step(row[None])[0] + lasting(row[None, :, None])[0]


def added(total, row):
    return total * 0.5 + one(row), total


WAYS = {
    "ops.map": lambda: ops.map(one, rows),
    "vectorized_map": lambda: ops.vectorized_map(one, rows),
    "tf.map_fn": lambda: tf.map_fn(
        one, tf.constant(rows), fn_output_signature=tf.float32
    ),
    "scan": lambda: ops.scan(added, ops.zeros(2), rows)[0],
    "fori_loop": lambda: ops.fori_loop(
        0, 3, lambda number, total: total + one(rows[0] * 0.1) * total, ops.ones(2)
    ),
}
for name, way in WAYS.items():
    with tf.GradientTape() as tape:
        loss = ops.sum(way() ** 2)
    weights = step.trainable_variables + lasting.trainable_variables
    slopes = tape.gradient(loss, weights)
    print(f"{name}, loss: {float(loss):.5f}")
    for weight, slope in zip(weights, slopes, strict=True):
        print(f"{name}, loss by {tuple(weight.shape)}: {float(ops.sum(slope)):.5f}")
