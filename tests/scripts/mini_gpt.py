# A tiny language model: causal attention over characters, then a sampled text.
import keras
import numpy as np
from keras import layers, ops

text = "the cat sat on the mat and the dog sat on the log. " * 4
letters = sorted(set(text))
numbers = np.array([letters.index(letter) for letter in text])
LENGTH, WIDTH = 12, 8
x = np.stack([numbers[i : i + LENGTH] for i in range(0, 60, 3)])
y = np.stack([numbers[i + 1 : i + LENGTH + 1] for i in range(0, 60, 3)])


class Embed(layers.Layer):
    def __init__(self, vocabulary, length, width):
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, width)
        self.places = layers.Embedding(length, width)

    def call(self, x):
        return self.tokens(x) + self.places(ops.arange(ops.shape(x)[-1]))


class Decoder(layers.Layer):
    def __init__(self, width, heads):
        super().__init__()
        self.attend = layers.MultiHeadAttention(heads, width // heads)
        self.wide, self.narrow = (
            layers.Dense(2 * width, activation="gelu"),
            layers.Dense(width),
        )
        self.norm1, self.norm2 = (
            layers.LayerNormalization(),
            layers.LayerNormalization(),
        )

    def call(self, x):
        h = self.norm1(x)
        x = x + self.attend(h, h, use_causal_mask=True)
        return x + self.narrow(self.wide(self.norm2(x)))


inputs = keras.Input((LENGTH,), dtype="int32")
h = Embed(len(letters), LENGTH, WIDTH)(inputs)
for _ in range(2):
    h = Decoder(WIDTH, 2)(h)
model = keras.Model(inputs, layers.Dense(len(letters))(h))
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
history = model.fit(x, y, batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
window = list(x[0])
for _ in range(3):
    scores = model.predict(np.array([window[-LENGTH:]]), verbose=0)[0, -1]
    window.append(int(scores.argmax()))
print("letters:", len(window))
