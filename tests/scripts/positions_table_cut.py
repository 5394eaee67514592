# Attention over steps: a small table of positions, cut to as many steps as there are.
import keras
import numpy as np
from keras import layers, ops

STEPS, WIDTH, WORDS = 12, 8, 15


class Positions(layers.Layer):
    def __init__(self, steps, width, **kwargs):
        super().__init__(**kwargs)
        step, pair = np.meshgrid(np.arange(steps), np.arange(width // 2), indexing="ij")
        angles = step / 10_000 ** (2 * pair / width)
        table = np.empty((1, steps, width), "float32")
        table[0, :, ::2], table[0, :, 1::2] = np.sin(angles), np.cos(angles)
        self.table = ops.convert_to_tensor(table)

    def call(self, inputs):
        shape = ops.shape(inputs)
        return inputs + self.table[:, : shape[-2], : shape[-1]]


rng = np.random.default_rng(8)
source = rng.integers(1, WORDS, (24, 6))
target = rng.integers(1, WORDS, (24, 7))

encoder_in = keras.Input((None,), dtype="int32")
decoder_in = keras.Input((None,), dtype="int32")
embed, place = layers.Embedding(WORDS, WIDTH), Positions(STEPS, WIDTH)
encoded = place(embed(encoder_in))
decoded = place(embed(decoder_in))
for _ in range(2):
    encoded = layers.Attention(use_scale=True)([encoded, encoded])
for _ in range(2):
    decoded = layers.Attention(use_scale=True)([decoded, decoded], use_causal_mask=True)
    decoded = layers.Attention(use_scale=True)([decoded, encoded])
outputs = layers.TimeDistributed(layers.Dense(WORDS, activation="softmax"))(decoded)
model = keras.Model([encoder_in, decoder_in], outputs)
print("shape:", place(embed(encoder_in)).shape)

model.compile("nadam", "sparse_categorical_crossentropy", metrics=["accuracy"])
history = model.fit(
    [source, target[:, :-1]], target[:, 1:], batch_size=8, epochs=2, verbose=0
)
for epoch, loss in enumerate(history.history["loss"]):
    print(f"loss of epoch {epoch}: {loss:.5f}")

beams = [(0.0, [1])]
for _ in range(3):
    longer = []
    for score, words in beams:
        rows = model.predict([source[:1], np.array([words])], verbose=0)[0, -1]
        for word in np.argsort(rows)[-2:]:
            longer.append((score + float(np.log(rows[word])), [*words, int(word)]))
    beams = sorted(longer, reverse=True)[:2]
for number, (score, words) in enumerate(beams):
    print("words:", words)
    print(f"score {number}: {score:.4f}")
