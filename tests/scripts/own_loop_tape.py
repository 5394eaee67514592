# A training loop written out with tf.GradientTape.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(6)
x = rng.normal(size=(48, 5)).astype("float32")
y = rng.integers(0, 3, size=(48,))
inputs = keras.Input(shape=(5,))
h = keras.layers.Dense(10, activation="relu")(inputs)
model = keras.Model(inputs, keras.layers.Dense(3)(h))
optimizer = keras.optimizers.SGD(learning_rate=0.1)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
accuracy = keras.metrics.SparseCategoricalAccuracy()
dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)

for epoch in range(2):
    total = 0.0
    for step, (x_batch, y_batch) in enumerate(dataset):
        with tf.GradientTape() as tape:
            logits = model(x_batch, training=True)
            loss_value = loss_fn(y_batch, logits)
        grads = tape.gradient(loss_value, model.trainable_weights)
        optimizer.apply_gradients(zip(grads, model.trainable_weights))
        accuracy.update_state(y_batch, logits)
        total += float(loss_value)
    print(f"loss {epoch}: {total / (step + 1):.5f}")
    print(f"accuracy {epoch}: {float(accuracy.result()):.4f}")
    accuracy.reset_state()
