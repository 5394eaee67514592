# Text classification from strings, with a standardization of its own.
import re
import string

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

good = [
    "A great film!<br />Loved it",
    "wonderful, simply wonderful",
    "great fun, great cast",
]
bad = ["a terrible film", "Awful. Simply awful!<br />", "boring and terrible"]
texts = np.array((good + bad) * 4)
labels = np.array(([1] * 3 + [0] * 3) * 4)


def standardize(text):
    text = tf.strings.lower(text)
    text = tf.strings.regex_replace(text, "<br />", " ")
    return tf.strings.regex_replace(text, f"[{re.escape(string.punctuation)}]", "")


vectorize = layers.TextVectorization(
    standardize=standardize, max_tokens=30, output_mode="int", output_sequence_length=6
)
vectorize.adapt(texts)
print("words:", ", ".join(vectorize.get_vocabulary()[:6]))
numbers = np.asarray(vectorize(texts))
model = tf.keras.Sequential(
    [
        tf.keras.Input((6,), dtype="int64"),
        layers.Embedding(30, 8),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(numbers, labels, batch_size=6, epochs=3, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"last loss: {history.history['loss'][-1]:.5f}")
