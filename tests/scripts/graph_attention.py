# Graph attention: edges are constants of the model, sizes of segments come from them.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

r = np.random.default_rng(0)
NODES = 12
states = r.normal(size=(NODES, 5)).astype("float32")
pairs = {(i, j % NODES) for i in range(NODES) for j in (i, 3 * i + 1, 7 * i + 2)}
edges = np.array(sorted(pairs))
labels = r.integers(0, 3, NODES)


class Attention(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units

    def build(self, shapes):
        width = shapes[0][-1]
        self.kernel = self.add_weight(shape=(width, self.units), name="kernel")
        self.scores = self.add_weight(shape=(2 * self.units, 1), name="scores")

    def call(self, inputs):
        states, edges = inputs
        states = tf.matmul(states, self.kernel)
        ends = tf.reshape(tf.gather(states, edges), (tf.shape(edges)[0], -1))
        scores = tf.squeeze(tf.nn.leaky_relu(tf.matmul(ends, self.scores)), -1)
        scores = tf.math.exp(tf.clip_by_value(scores, -2, 2))
        count = tf.reduce_max(edges[:, 0]) + 1
        sums = tf.math.unsorted_segment_sum(scores, edges[:, 0], count)
        sums = tf.repeat(sums, tf.math.bincount(tf.cast(edges[:, 0], "int32")))
        messages = tf.gather(states, edges[:, 1]) * (scores / sums)[:, tf.newaxis]
        return tf.math.unsorted_segment_sum(messages, edges[:, 0], tf.shape(states)[0])


class Network(keras.Model):
    def __init__(self):
        super().__init__()
        self.states = tf.convert_to_tensor(states)
        self.edges = tf.convert_to_tensor(edges)
        self.first, self.second = Attention(4), Attention(4)
        self.last = layers.Dense(3)

    def call(self, nodes):
        x = tf.nn.elu(self.first([self.states, self.edges]))
        x = self.second([x, self.edges]) + x
        return tf.gather(self.last(x), nodes)


model = Network()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
history = model.fit(np.arange(NODES), labels, batch_size=6, epochs=2, verbose=0).history
print(f"loss: {history['loss'][0]:.5f}")
print(f"second loss: {history['loss'][1]:.5f}")
print("scores:", model.predict(np.array([0, 5]), verbose=0).shape)
