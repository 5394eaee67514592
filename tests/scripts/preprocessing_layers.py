# Structured data: lookups, normalization and crossing as layers of the model.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(16)
ages = rng.uniform(18, 70, size=(60, 1)).astype("float32")
kinds = np.array(["cat", "dog", "bird"])[rng.integers(0, 3, size=60)]
codes = rng.integers(0, 100, size=(60, 1))
y = ((ages[:, 0] > 40) ^ (kinds == "cat")).astype("float32")

normalize = layers.Normalization()
normalize.adapt(ages)
lookup = layers.StringLookup(output_mode="one_hot")
lookup.adapt(kinds)
buckets = layers.Discretization(num_bins=4, output_mode="one_hot")
buckets.adapt(ages)
columns = [
    np.asarray(normalize(ages)),
    np.asarray(lookup(kinds)),
    np.asarray(buckets(ages))[:, 0]
    if np.asarray(buckets(ages)).ndim == 3
    else np.asarray(buckets(ages)),
    np.asarray(
        layers.CategoryEncoding(num_tokens=10, output_mode="one_hot")(codes // 10)
    ),
]
x = np.concatenate([column.reshape(60, -1) for column in columns], axis=1)
print("columns:", x.shape)
model = keras.Sequential(
    [keras.Input((x.shape[1],)), layers.Dense(8, "relu"), layers.Dense(1, "sigmoid")]
)
model.compile(
    "adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")]
)
history = model.fit(x, y, epochs=2, batch_size=20, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"auc: {history.history['auc'][0]:.4f}")
