# Two inputs, three outputs, a loss and a weight for each.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(15)
title = rng.integers(0, 20, size=(40, 6))
tags = rng.integers(0, 2, size=(40, 5)).astype("float32")
priority = tags.mean(axis=1, keepdims=True)
department = rng.integers(0, 4, size=(40, 1))
price = rng.normal(size=(40, 1)).astype("float32")

title_in = keras.Input(shape=(6,), name="title", dtype="int32")
tags_in = keras.Input(shape=(5,), name="tags")
words = layers.GRU(6)(layers.Embedding(20, 5)(title_in))
joined = layers.concatenate([words, tags_in])
outputs = {
    "priority": layers.Dense(1, activation="sigmoid", name="priority")(joined),
    "department": layers.Dense(4, activation="softmax", name="department")(joined),
    "price": layers.Dense(1, name="price")(joined),
}
model = keras.Model([title_in, tags_in], outputs)
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-2),
    loss={
        "priority": "binary_crossentropy",
        "department": "sparse_categorical_crossentropy",
        "price": keras.losses.LogCosh(),
    },
    loss_weights={"priority": 1.0, "department": 0.2, "price": 0.5},
    metrics={"department": ["accuracy"]},
)
history = model.fit(
    {"title": title, "tags": tags},
    {"priority": priority, "department": department, "price": price},
    epochs=2,
    batch_size=10,
    verbose=0,
)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[0]:.5f}")
