# A transformer block for sequences: attention, residuals, layer normalization.
import keras
import numpy as np
from keras import layers, ops


class Positions(layers.Layer):
    def __init__(self, length, vocabulary, width):
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, width)
        self.places = layers.Embedding(length, width)

    def call(self, x):
        places = ops.arange(0, ops.shape(x)[-1], 1)
        return self.tokens(x) + self.places(places)


class Block(layers.Layer):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.attend = layers.MultiHeadAttention(num_heads=heads, key_dim=width // heads)
        self.network = keras.Sequential(
            [layers.Dense(hidden, "relu"), layers.Dense(width)]
        )
        self.norm1 = layers.LayerNormalization(epsilon=1e-6)
        self.norm2 = layers.LayerNormalization(epsilon=1e-6)

    def call(self, inputs):
        attended = self.norm1(inputs + self.attend(inputs, inputs))
        return self.norm2(attended + self.network(attended))


rng = np.random.default_rng(10)
x = rng.integers(0, 20, size=(32, 7))
y = (x == 3).any(axis=1).astype("int32")
inputs = layers.Input(shape=(7,), dtype="int32")
h = Block(8, 2, 12)(Positions(7, 20, 8)(inputs))
outputs = layers.Dense(2, activation="softmax")(layers.GlobalAveragePooling1D()(h))
model = keras.Model(inputs, outputs)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
