"""A loop of its own under `tf.distribute`, with per-example losses and a checkpoint."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
print("devices", strategy.num_replicas_in_sync)
draws = np.random.default_rng(0)
images = draws.random((32, 6, 6, 1)).astype("float32")
labels = draws.integers(0, 3, 32)
dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(32).batch(8)
batches = strategy.experimental_distribute_dataset(dataset)


def make_model():
    penalty = tf.keras.regularizers.L2(1e-3)
    return tf.keras.Sequential(
        [
            tf.keras.Input((6, 6, 1)),
            tf.keras.layers.Conv2D(3, 3, activation="relu", kernel_regularizer=penalty),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(3, kernel_regularizer=penalty),
        ]
    )


with strategy.scope():
    loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="none"
    )
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    model = make_model()
    optimizer = tf.keras.optimizers.Adam(0.01)
    checkpoint = tf.train.Checkpoint(optimizer=optimizer, model=model)


def train_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        predictions = model(x, training=True)
        loss = tf.nn.compute_average_loss(loss_object(y, predictions))
        loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    accuracy.update_state(y, predictions)
    return loss


@tf.function
def distributed_step(inputs):
    losses = strategy.run(train_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for epoch in range(2):
    total = 0.0
    for batch in batches:
        total += distributed_step(batch)
    print(f"epoch {epoch} loss: {float(total) / 4:.5f}")
    print(f"epoch {epoch} accuracy: {float(accuracy.result()):.5f}")
    accuracy.reset_state()
checkpoint.save("./kept/ckpt")
other = make_model()
tf.train.Checkpoint(model=other).restore(tf.train.latest_checkpoint("./kept"))
print("restored", bool(np.allclose(other(images), model(images))))


@tf.function
def collatz(n):
    steps = tf.constant(0)
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


print("steps", int(collatz(tf.constant(7))))
