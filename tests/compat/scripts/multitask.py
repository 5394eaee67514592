# Several inputs, several outputs, losses and weights by name.
import keras
import numpy as np
from keras import layers

num_tags = 12
num_words = 100
num_departments = 4
title_input = keras.Input(shape=(None,), name="title")
body_input = keras.Input(shape=(None,), name="body")
tags_input = keras.Input(shape=(num_tags,), name="tags")
title_features = layers.Embedding(num_words, 16)(title_input)
body_features = layers.Embedding(num_words, 16)(body_input)
title_features = layers.GlobalAveragePooling1D()(title_features)
body_features = layers.Conv1D(8, 3, activation="relu")(body_features)
body_features = layers.GlobalMaxPooling1D()(body_features)
x = layers.concatenate([title_features, body_features, tags_input])
priority_pred = layers.Dense(1, name="priority")(x)
department_pred = layers.Dense(num_departments, name="department")(x)
model = keras.Model(
    inputs=[title_input, body_input, tags_input],
    outputs={"priority": priority_pred, "department": department_pred},
)
keras.utils.plot_model(model, "multi_input_and_output_model.dot", show_shapes=True)
model.compile(
    optimizer=keras.optimizers.RMSprop(1e-3),
    loss={
        "priority": keras.losses.BinaryCrossentropy(from_logits=True),
        "department": keras.losses.CategoricalCrossentropy(from_logits=True),
    },
    loss_weights={"priority": 1.0, "department": 0.2},
    metrics={"department": ["accuracy"], "priority": "binary_accuracy"},
)
title_data = np.random.randint(num_words, size=(128, 12))
body_data = np.random.randint(num_words, size=(128, 30))
tags_data = np.random.randint(2, size=(128, num_tags)).astype("float32")
priority_targets = tags_data[:, :1]
dept_targets = keras.utils.to_categorical(tags_data[:, 1:3] @ [1, 2], num_departments)
history = model.fit(
    {"title": title_data, "body": body_data, "tags": tags_data},
    {"priority": priority_targets, "department": dept_targets},
    epochs=4,
    batch_size=32,
)
print(sorted(history.history))

# The same by lists, with one loss for both.
a, b = keras.Input((5,)), keras.Input((3,))
h = layers.Dense(8, "relu")(layers.Concatenate()([a, b]))
two = keras.Model(
    [a, b], [layers.Dense(1, name="one")(h), layers.Dense(2, name="two")(h)]
)
two.compile(
    "sgd",
    loss=["mse", "mae"],
    loss_weights=[1.0, 0.5],
    metrics=[["mae"], ["mse", "mae"]],
)
xs = [np.random.rand(40, 5), np.random.rand(40, 3)]
two.fit(xs, [xs[0][:, :1], xs[1][:, :2]], epochs=2, verbose=0)
print(two.metrics_names, two.evaluate(xs, [xs[0][:, :1], xs[1][:, :2]], verbose=0))
p, q = two.predict(xs, verbose=0)
print(p.shape, q.shape)
print("final loss:", history.history["loss"][-1])
