# Policy gradients on a toy task: returns, a log-probability, a value.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

rng = np.random.default_rng(38)
inputs = layers.Input(shape=(4,))
common = layers.Dense(8, activation="relu")(inputs)
action = layers.Dense(2, activation="softmax")(common)
critic = layers.Dense(1)(common)
model = keras.Model(inputs=inputs, outputs=[action, critic])
optimizer = keras.optimizers.Adam(learning_rate=0.01)
huber = keras.losses.Huber()

for episode in range(3):
    states = rng.normal(size=(4, 4)).astype("float32")
    with tf.GradientTape() as tape:
        logs, values, rewards = [], [], []
        for state in states:
            probabilities, value = model(tf.expand_dims(tf.convert_to_tensor(state), 0))
            choice = int(rng.integers(0, 2))
            logs.append(tf.math.log(probabilities[0, choice]))
            values.append(value[0, 0])
            rewards.append(float(choice == (state[0] > 0)))
        returns, total = [], 0.0
        for reward in rewards[::-1]:
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = (np.array(returns) - np.mean(returns)) / (np.std(returns) + 1e-7)
        losses = []
        for log, value, expected in zip(logs, values, returns):
            losses.append(-log * float(expected - float(value)))
            losses.append(
                huber(tf.expand_dims(value, 0), tf.constant([expected], tf.float32))
            )
        loss = sum(losses)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    print(f"loss {episode}: {float(loss):.4f}")
