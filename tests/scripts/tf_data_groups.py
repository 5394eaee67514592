"""`tf.data`: sequences of many lengths in padded batches, buckets and groups."""

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers


def sequences():
    for number in range(12):
        length = number % 5 + 2
        steps = np.arange(1, length + 1, dtype="int32") * (number % 3 + 1) % 9
        yield steps, number % 2


rows = tf.data.Dataset.from_generator(
    sequences,
    output_signature=(
        tf.TensorSpec(shape=(None,), dtype=tf.int32),
        tf.TensorSpec(shape=(), dtype=tf.int32),
    ),
)
padded = rows.padded_batch(4, padded_shapes=([None], []), padding_values=(-1, 0))
for steps, labels in padded.take(1):
    print(steps.numpy().tolist(), labels.numpy().tolist())
buckets = rows.bucket_by_sequence_length(
    element_length_func=lambda steps, label: tf.shape(steps)[0],
    bucket_boundaries=[4],
    bucket_batch_sizes=[4, 3],
)
print([steps.numpy().shape for steps, _ in buckets])
groups = tf.data.Dataset.range(7).group_by_window(
    key_func=lambda n: n % 2,
    reduce_func=lambda key, window: window.batch(2),
    window_size=2,
)
print([group.tolist() for group in groups.as_numpy_iterator()])
chosen = tf.data.Dataset.choose_from_datasets(
    [tf.data.Dataset.range(3), tf.data.Dataset.range(10, 13)],
    tf.data.Dataset.from_tensor_slices(np.array([0, 1, 1, 0], "int64")),
)
print([int(n) for n in chosen])
pairs = tf.data.Dataset.zip((tf.data.Dataset.range(3), tf.data.experimental.Counter(5)))
print([(int(a), int(b)) for a, b in pairs])
squares = tf.data.Dataset.range(4).map(
    lambda n: tf.numpy_function(lambda v: (v * v).astype("int64"), [n], tf.int64)
)
print([int(n) for n in squares])

model = tf.keras.Sequential(
    [
        layers.Embedding(10, 4, mask_zero=True),
        layers.LSTM(5),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(buckets, epochs=2, validation_data=buckets, verbose=0)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[-1]:.5f}")
