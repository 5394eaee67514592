# Hierarchical attention: a model of words inside of TimeDistributed, one of sentences.
import keras
import numpy as np
from keras import layers, ops


class Attention(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.width, self.supports_masking = width, True

    def build(self, input_shape):
        self.kernel = self.add_weight(
            shape=(input_shape[-1], self.width), name="kernel"
        )
        self.bias = self.add_weight(
            shape=(self.width,), initializer="zeros", name="bias"
        )
        self.context = self.add_weight(shape=(self.width, 1), name="context")

    def compute_mask(self, x, mask=None):
        return None

    def call(self, x, mask=None):
        scores = ops.tanh(ops.matmul(x, self.kernel) + self.bias) @ self.context
        scores = ops.exp(ops.squeeze(scores, -1))
        if mask is not None:
            scores = scores * ops.cast(mask, "float32")
        scores = scores / (ops.sum(scores, axis=1, keepdims=True) + 1e-7)
        return ops.sum(x * ops.expand_dims(scores, -1), axis=1)


words = keras.Input((5,), dtype="int32")
x = layers.Embedding(30, 6, mask_zero=True)(words)
x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)
sentence = keras.Model(words, Attention(4)(x))
texts = keras.Input((3, 5), dtype="int32")
x = layers.TimeDistributed(sentence)(texts)
x = layers.Bidirectional(layers.GRU(4, return_sequences=True))(x)
model = keras.Model(texts, layers.Dense(2, activation="softmax")(Attention(4)(x)))
model.compile("rmsprop", "categorical_crossentropy", metrics=["accuracy"])
rs = np.random.RandomState(0)
documents, labels = rs.randint(1, 30, (16, 3, 5)), np.eye(2)[rs.randint(0, 2, 16)]
documents[::2, :, 3:] = 0
history = model.fit(documents, labels, batch_size=8, verbose=0).history
for name in ("loss", "accuracy"):
    print(f"{name}: {history[name][-1]:.5f}")
print(f"loss after: {model.test_on_batch(documents[:4], labels[:4])[0]:.5f}")
