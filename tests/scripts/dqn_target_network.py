# Deep Q-learning: a replay memory, a target network, a masked loss.
import numpy as np
import tensorflow as tf
from tensorflow import keras

rng = np.random.default_rng(39)


def q_network():
    return keras.Sequential(
        [
            keras.Input((3,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(2),
        ]
    )


model, target = q_network(), q_network()
target.set_weights(model.get_weights())
optimizer = keras.optimizers.Adam(0.01, clipnorm=1.0)
loss_function = keras.losses.Huber()
states = rng.normal(size=(60, 3)).astype("float32")
nexts = rng.normal(size=(60, 3)).astype("float32")
actions, rewards = rng.integers(0, 2, size=60), rng.uniform(size=60).astype("float32")

for step in range(6):
    picked = rng.choice(60, size=12)
    future = target.predict(nexts[picked], verbose=0)
    updated = rewards[picked] + 0.9 * tf.reduce_max(future, axis=1)
    masks = tf.one_hot(actions[picked], 2)
    with tf.GradientTape() as tape:
        q_values = model(states[picked])
        q_action = tf.reduce_sum(tf.multiply(q_values, masks), axis=1)
        loss = loss_function(updated, q_action)
    grads = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    if step % 3 == 2:
        target.set_weights(model.get_weights())
    print(f"loss {step}: {float(loss):.5f}")
