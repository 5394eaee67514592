# A graph convolution over all nodes at once: the batch is the graph, of a known size.
import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

NODES = 20
rng = np.random.default_rng(2)
edges = np.triu(rng.random((NODES, NODES)) < 0.2, 1)
adjacency = (edges | edges.T | np.eye(NODES, dtype=bool)).astype("float32")
scale = adjacency.sum(axis=1) ** -0.5
adjacency *= scale[:, None] * scale[None]
features = rng.normal(size=(NODES, 5)).astype("float32")
labels = rng.integers(0, 3, NODES)
known = (np.arange(NODES) < 12).astype("float32")


class GraphConvolution(layers.Layer):
    def __init__(self, units, adjacency, activation=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.adjacency = ops.convert_to_tensor(adjacency)
        self.activation = keras.activations.get(activation)

    def build(self, input_shape):
        self.kernel = self.add_weight(shape=(input_shape[-1], self.units))

    def call(self, inputs):
        return self.activation(ops.matmul(self.adjacency, inputs @ self.kernel))


model = keras.Sequential(
    [
        keras.Input((5,)),
        GraphConvolution(8, adjacency, "relu"),
        GraphConvolution(3, adjacency, "softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"])
history = model.fit(
    features, labels, sample_weight=known, batch_size=NODES, epochs=3, verbose=0
)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"loss of epoch {epoch}: {loss:.5f}")
rest = model.evaluate(
    features, labels, sample_weight=1 - known, batch_size=NODES, verbose=0
)
print(f"loss of the others: {rest[0]:.5f}")

# The same neighbours as pairs, softmax over the edges that end in a node.
starts, ends = np.nonzero(adjacency)
weights = tf.Variable(0.3 * rng.normal(size=(5, 4)).astype("float32"))
with tf.GradientTape() as tape:
    hidden = tf.matmul(features, weights)
    scores = tf.reduce_sum(tf.gather(hidden, starts) * tf.gather(hidden, ends), axis=1)
    raised = tf.exp(scores - tf.reduce_max(scores))
    total = tf.math.unsorted_segment_sum(raised, ends, NODES)
    share = raised / tf.gather(total, ends)
    pooled = tf.math.unsorted_segment_sum(
        share[:, None] * tf.gather(hidden, starts), ends, NODES
    )
    energy = tf.reduce_mean(pooled**2)
print(f"energy: {float(energy):.5f}")
print(f"slope: {float(tf.norm(tape.gradient(energy, weights))):.5f}")
