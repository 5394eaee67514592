"""An actor and its critic: episodes in `tf.TensorArray`, the game in NumPy."""

import numpy as np
import tensorflow as tf


class Game:
    def reset(self):
        self.step_count = 0
        self.state = np.array([0.1, -0.2, 0.05], "float32")
        return self.state

    def step(self, action):
        self.step_count += 1
        push = 0.1 if action else -0.1
        self.state = (self.state * 0.9 + push).astype("float32")
        return self.state, 1.0 + push, self.step_count >= 7


game = Game()
shared = tf.keras.layers.Dense(8, activation="relu")
actor, critic = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
inputs = tf.keras.Input((3,))
hidden = shared(inputs)
model = tf.keras.Model(inputs, [actor(hidden), critic(hidden)])
huber = tf.keras.losses.Huber(reduction="sum")
optimizer = tf.keras.optimizers.Adam(0.01)


@tf.numpy_function(Tout=[tf.float32, tf.float32, tf.int32])
def play(action):
    state, reward, is_over = game.step(action)
    return state, np.array(reward, "float32"), np.array(is_over, "int32")


def run_episode(state, most_steps):
    chances = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    values = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    rewards = tf.TensorArray(dtype=tf.float32, size=0, dynamic_size=True)
    shape = state.shape
    for t in tf.range(most_steps):
        logits, value = model(tf.expand_dims(state, 0))
        action = tf.argmax(logits, axis=1)[0]
        values = values.write(t, tf.squeeze(value))
        chances = chances.write(t, tf.nn.softmax(logits)[0, action])
        state, reward, is_over = play(action)
        state.set_shape(shape)
        rewards = rewards.write(t, reward)
        if tf.cast(is_over, tf.bool):
            break
    return chances.stack(), values.stack(), rewards.stack()


def expected_returns(rewards, discount):
    count = tf.shape(rewards)[0]
    returns = tf.TensorArray(dtype=tf.float32, size=count)
    total = tf.constant(0.0)
    rewards = rewards[::-1]
    for i in tf.range(count):
        total = rewards[i] + discount * total
        returns = returns.write(i, total)
    returns = returns.stack()[::-1]
    spread = tf.math.reduce_std(returns) + 1e-6
    return (returns - tf.math.reduce_mean(returns)) / spread


@tf.function
def train_step(state):
    with tf.GradientTape() as tape:
        chances, values, rewards = run_episode(state, 20)
        returns = expected_returns(rewards, 0.99)
        advantage = returns - values
        loss = -tf.math.reduce_sum(tf.math.log(chances) * advantage)
        loss += huber(tf.expand_dims(values, 1), tf.expand_dims(returns, 1))
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return tf.math.reduce_sum(rewards), loss


for episode in range(3):
    reward, loss = train_step(tf.constant(game.reset(), dtype=tf.float32))
    print(f"episode {episode} reward: {float(reward):.4f}")
    print(f"episode {episode} loss: {float(loss):.4f}")
