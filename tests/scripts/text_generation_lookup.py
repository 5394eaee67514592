"""Characters by `StringLookup`, a GRU with states, and text out of it again."""

import tensorflow as tf

text = "the quick brown fox jumps over the lazy dog. " * 6
chars = tf.strings.unicode_split(text, "UTF-8")
ids_from_chars = tf.keras.layers.StringLookup(
    vocabulary=sorted(set(text)), mask_token=None
)
chars_from_ids = tf.keras.layers.StringLookup(
    vocabulary=ids_from_chars.get_vocabulary(), invert=True, mask_token=None
)


def text_from_ids(ids):
    return tf.strings.reduce_join(chars_from_ids(ids), axis=-1)


ids = tf.data.Dataset.from_tensor_slices(ids_from_chars(chars))
for char in ids.take(3):
    print(chars_from_ids(char).numpy().decode("utf-8"))
sequences = ids.batch(13, drop_remainder=True)
for sequence in sequences.take(2):
    print(text_from_ids(sequence).numpy(), sequence.dtype == tf.int64)
dataset = sequences.map(lambda row: (row[:-1], row[1:])).batch(5, drop_remainder=True)


class Writer(tf.keras.Model):
    def __init__(self, words):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(words, 6)
        self.gru = tf.keras.layers.GRU(8, return_sequences=True, return_state=True)
        self.dense = tf.keras.layers.Dense(words)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs, training=training)
        if states is None:
            states = self.gru.get_initial_state(x.shape[0])
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        return (x, states) if return_state else x


model = Writer(len(ids_from_chars.get_vocabulary()))
loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss)
history = model.fit(dataset, epochs=2, verbose=0)
for number, value in enumerate(history.history["loss"]):
    print(f"epoch {number} loss: {value:.5f}")


@tf.function
def next_char(inputs, states=None):
    letters = tf.strings.unicode_split(inputs, "UTF-8")
    codes = ids_from_chars(letters)
    codes = codes.to_tensor() if hasattr(codes, "to_tensor") else codes
    logits, states = model(inputs=codes, states=states, return_state=True)
    return chars_from_ids(tf.argmax(logits[:, -1, :], axis=-1)), states


states, char = None, tf.constant(["the"])
result = [char]
for _ in range(5):
    char, states = next_char(char, states=states)
    result.append(char)
written = tf.strings.join(result)[0].numpy().decode("utf-8")
print(len(written), written.startswith("the"))
