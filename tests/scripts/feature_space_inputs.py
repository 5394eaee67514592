"""A table of numbers and words: `FeatureSpace`, texts in `tf.data`, two models."""

import keras
import numpy as np
import tensorflow as tf
from keras.utils import FeatureSpace

draws = np.random.default_rng(0)
table = {
    "age": draws.integers(20, 70, 40),
    "sex": draws.integers(0, 2, 40),
    "thal": draws.choice(["fixed", "normal", "reversible"], 40),
    "chol": draws.normal(200, 30, 40),
}
labels = draws.integers(0, 2, 40)
rows = tf.data.Dataset.from_tensor_slices((table, labels)).shuffle(40)
for row, label in rows.take(1):
    texts = [name for name, value in row.items() if value.dtype == tf.string]
    print(texts, row["thal"].numpy(), int(row["age"]), int(label))
batches = rows.batch(8)
space = FeatureSpace(
    features={
        "sex": FeatureSpace.integer_categorical(num_oov_indices=0),
        "thal": FeatureSpace.string_categorical(num_oov_indices=0),
        "age": FeatureSpace.float_discretized(num_bins=4),
        "chol": FeatureSpace.float_normalized(),
    },
    crosses=[FeatureSpace.cross(feature_names=("sex", "age"), crossing_dim=8)],
    output_mode="concat",
)
space.adapt(batches.map(lambda x, _: x))
encoded = batches.map(lambda x, y: (space(x), y), num_parallel_calls=tf.data.AUTOTUNE)
for features, _ in encoded.take(1):
    print("features", tuple(features.shape))
    print(f"sum: {float(tf.reduce_sum(features)):.4f}")
hidden = keras.layers.Dense(6, activation="relu")(space.get_encoded_features())
output = keras.layers.Dense(1, activation="sigmoid")(hidden)
training_model = keras.Model(space.get_encoded_features(), output)
training_model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = training_model.fit(encoded.prefetch(2), epochs=2, verbose=0)
print(f"loss: {history.history['loss'][-1]:.5f}")
inference_model = keras.Model(space.get_inputs(), output)
sample = {"age": 60, "sex": 1, "thal": "fixed", "chol": 233.0}
inputs = {name: tf.convert_to_tensor([value]) for name, value in sample.items()}
chance = inference_model.predict(inputs, verbose=0)[0][0]
print(f"probability: {chance:.5f}")
