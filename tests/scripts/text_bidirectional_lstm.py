# A bidirectional LSTM on padded sequences of word numbers.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(9)
sentences = [list(rng.integers(1, 30, size=rng.integers(3, 9))) for _ in range(18)]
labels = np.array([int(max(sentence) > 25) for sentence in sentences])
x = keras.utils.pad_sequences(sentences, maxlen=8, padding="post")

inputs = keras.Input(shape=(None,), dtype="int32")
h = layers.Embedding(30, 6, mask_zero=True)(inputs)
h = layers.Bidirectional(layers.LSTM(5, return_sequences=True))(h)
h = layers.Bidirectional(layers.LSTM(4))(h)
outputs = layers.Dense(1, activation="sigmoid")(h)
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(x, labels, batch_size=9, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
