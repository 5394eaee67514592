"""A translator with attention, its own loop and `tf.train.Checkpoint`."""

import numpy as np
import tensorflow as tf

PAIRS = [("go .", "ve ."), ("i like cats .", "me gustan los gatos ."), ("stop", "para")]


def tokenized(texts):
    tokenizer = tf.keras.preprocessing.text.Tokenizer(filters="")
    marked = [f"<start> {text} <end>" for text in texts]
    tokenizer.fit_on_texts(marked)
    sequences = tokenizer.texts_to_sequences(marked)
    pad = tf.keras.preprocessing.sequence.pad_sequences
    return pad(sequences, padding="post"), tokenizer


sources, source_words = tokenized([pair[0] for pair in PAIRS] * 4)
targets, target_words = tokenized([pair[1] for pair in PAIRS] * 4)
dataset = tf.data.Dataset.from_tensor_slices((sources, targets)).shuffle(12).batch(6)


class Encoder(tf.keras.Model):
    def __init__(self, words, units):
        super().__init__()
        self.units = units
        self.embedding = tf.keras.layers.Embedding(words, 4)
        self.gru = tf.keras.layers.GRU(units, return_sequences=True, return_state=True)

    def call(self, x, hidden):
        return self.gru(self.embedding(x), initial_state=hidden)


class Decoder(tf.keras.Model):
    def __init__(self, words, units):
        super().__init__()
        self.embedding = tf.keras.layers.Embedding(words, 4)
        self.gru = tf.keras.layers.GRU(units, return_sequences=True, return_state=True)
        self.query, self.keys = (tf.keras.layers.Dense(units) for _ in range(2))
        self.score = tf.keras.layers.Dense(1)
        self.out = tf.keras.layers.Dense(words)

    def call(self, x, hidden, encoded):
        mixed = self.query(tf.expand_dims(hidden, 1)) + self.keys(encoded)
        weights = tf.nn.softmax(self.score(tf.nn.tanh(mixed)), axis=1)
        context = tf.reduce_sum(weights * encoded, axis=1)
        x = tf.concat([tf.expand_dims(context, 1), self.embedding(x)], axis=-1)
        output, state = self.gru(x)
        return self.out(tf.reshape(output, (-1, output.shape[2]))), state, weights


encoder = Encoder(len(source_words.word_index) + 1, 6)
decoder = Decoder(len(target_words.word_index) + 1, 6)
optimizer = tf.keras.optimizers.Adam(0.01)
loss_object = tf.keras.losses.SparseCategoricalCrossentropy(
    from_logits=True, reduction="none"
)
checkpoint = tf.train.Checkpoint(optimizer=optimizer, encoder=encoder, decoder=decoder)


@tf.function
def train_step(source, target):
    loss = 0
    with tf.GradientTape() as tape:
        encoded, hidden = encoder(source, tf.zeros((6, 6)))
        word = tf.expand_dims([target_words.word_index["<start>"]] * 6, 1)
        for t in range(1, target.shape[1]):
            predictions, hidden, _ = decoder(word, hidden, encoded)
            mask = tf.cast(tf.math.logical_not(target[:, t] == 0), "float32")
            loss += tf.reduce_mean(loss_object(target[:, t], predictions) * mask)
            word = tf.expand_dims(target[:, t], 1)
    variables = encoder.trainable_variables + decoder.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss / int(target.shape[1])


for epoch in range(2):
    for source, target in dataset:
        print(f"epoch {epoch} loss: {train_step(source, target).numpy():.5f}")
checkpoint.save(file_prefix="./checkpoints/ckpt")
kept = encoder.get_weights()
encoder.set_weights([0 * weight for weight in kept])
checkpoint.restore(tf.train.latest_checkpoint("./checkpoints"))
same = all(map(np.array_equal, kept, encoder.get_weights()))
print("restored", same, int(optimizer.iterations))
encoded, hidden = encoder(tf.convert_to_tensor(sources[:1]), [tf.zeros((1, 6))])
word = tf.expand_dims([target_words.word_index["<start>"]], 0)
for _ in range(3):
    predictions, hidden, weights = decoder(word, hidden, encoded)
    chosen = tf.argmax(predictions[0]).numpy()
    print("word", chosen, tf.reshape(weights, (-1,)).shape)
    word = tf.expand_dims([chosen], 0)
