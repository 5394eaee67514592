# Text by a network of characters: a mask from a sparse tensor, one step at a time.
import numpy as np
import tensorflow as tf

text = "to be or not to be that is the question " * 3
vocabulary = sorted(set(text))
to_ids = tf.keras.layers.StringLookup(vocabulary=list(vocabulary), mask_token=None)
to_chars = tf.keras.layers.StringLookup(
    vocabulary=to_ids.get_vocabulary(), invert=True, mask_token=None
)
all_ids = to_ids(tf.strings.unicode_split(text, "UTF-8"))
sequences = tf.data.Dataset.from_tensor_slices(all_ids).batch(11, drop_remainder=True)
for sequence in sequences.take(1):
    print(tf.strings.reduce_join(to_chars(sequence), axis=-1).numpy())
dataset = (
    sequences.map(lambda row: (row[:-1], row[1:]))
    .shuffle(100)
    .batch(5, drop_remainder=True)
)
SIZE = len(to_ids.get_vocabulary())


class Network(tf.keras.Model):
    def __init__(self, size, units):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(size, 6)
        self.gru = tf.keras.layers.GRU(units, return_sequences=True, return_state=True)
        self.dense = tf.keras.layers.Dense(size)

    def call(self, inputs, states=None, return_state=False, training=False):
        x = self.embedding(inputs, training=training)
        if states is None:
            states = self.gru.get_initial_state(tf.shape(x)[0])
        x, states = self.gru(x, initial_state=states, training=training)
        x = self.dense(x, training=training)
        return (x, states) if return_state else x


model = Network(SIZE, 8)
loss = tf.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=tf.keras.optimizers.Adam(0.01), loss=loss)
history = model.fit(dataset, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][-1]:.5f}")


class OneStep(tf.keras.Model):
    def __init__(self, model, temperature=1.0):
        super().__init__()
        self.model, self.temperature = model, temperature
        skipped = to_ids(["[UNK]"])[:, None]
        mask = tf.SparseTensor(
            values=[-float("inf")] * len(skipped), indices=skipped, dense_shape=[SIZE]
        )
        self.prediction_mask = tf.sparse.to_dense(mask)

    @tf.function
    def generate_one_step(self, inputs, states=None):
        ids = to_ids(tf.strings.unicode_split(inputs, "UTF-8")).to_tensor()
        logits, states = self.model(inputs=ids, states=states, return_state=True)
        logits = logits[:, -1, :] / self.temperature + self.prediction_mask
        best = tf.argmax(logits, axis=-1)
        return to_chars(best), states


step, states, letter = OneStep(model), None, tf.constant(["to "])
result = [letter]
for _ in range(5):
    letter, states = step.generate_one_step(letter, states=states)
    result.append(letter)
print(tf.strings.join(result)[0].numpy().decode("utf-8"))
