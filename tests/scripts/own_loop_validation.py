# A whole loop by hand: compiled train and test steps, metrics, a schedule, early end.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(62)
x = rng.normal(size=(60, 6)).astype("float32")
y = (x[:, 0] + x[:, 1] > 0).astype("int32")
train = tf.data.Dataset.from_tensor_slices((x[:48], y[:48])).batch(12)
test = tf.data.Dataset.from_tensor_slices((x[48:], y[48:])).batch(12)
model = keras.Sequential(
    [
        keras.Input((6,)),
        keras.layers.Dense(8, kernel_regularizer="l2"),
        keras.layers.BatchNormalization(),
        keras.layers.ReLU(),
        keras.layers.Dense(2),
    ]
)
schedule = keras.optimizers.schedules.ExponentialDecay(
    0.05, decay_steps=4, decay_rate=0.8
)
optimizer = keras.optimizers.Adam(schedule)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
train_loss, test_loss = keras.metrics.Mean(), keras.metrics.Mean()
accuracy = keras.metrics.SparseCategoricalAccuracy()


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        logits = model(x, training=True)
        loss = loss_fn(y, logits) + tf.add_n(model.losses)
    grads = tape.gradient(loss, model.trainable_weights)
    optimizer.apply_gradients(zip(grads, model.trainable_weights))
    train_loss.update_state(loss)


@tf.function
def test_step(x, y):
    logits = model(x, training=False)
    test_loss.update_state(loss_fn(y, logits))
    accuracy.update_state(y, logits)


for epoch in range(3):
    for metric in (train_loss, test_loss, accuracy):
        metric.reset_state()
    for batch in train:
        train_step(*batch)
    for batch in test:
        test_step(*batch)
    print(f"loss {epoch}: {float(train_loss.result()):.5f}")
    print(f"test loss {epoch}: {float(test_loss.result()):.5f}")
    print(f"accuracy {epoch}: {float(accuracy.result()):.4f}")
