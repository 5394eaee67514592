# Freezing a base, a new head, fine-tuning; cutting models by their layers.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(64, 16, 16, 3)).astype("float32")
y = rng.integers(0, 4, 64)
x += y[:, None, None, None]

base = keras.Sequential(
    [
        keras.Input((16, 16, 3)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.Conv2D(8, 3, activation="relu", name="last_conv"),
        layers.GlobalAveragePooling2D(name="pool"),
        layers.Dense(4, activation="softmax", name="classes"),
    ],
    name="base",
)
base.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
base.fit(x, y, epochs=1, verbose=0)
base.save_weights("base.weights.h5")
base.save("base.keras")

# 1. Cut off the head.
base_model = keras.Model(inputs=base.input, outputs=base.layers[-2].output)
for layer in base_model.layers:
    layer.trainable = False
inputs = keras.Input(shape=(16, 16, 3))
h = layers.Rescaling(scale=1 / 127.5, offset=-1)(inputs * 127.5)
h = base_model(h, training=False)
h = layers.Dropout(0.2)(h)
outputs = layers.Dense(2)(h)
model = keras.Model(inputs, outputs)
model.summary(show_trainable=True)
model.compile(
    optimizer=keras.optimizers.Adam(1e-2),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
before = base_model.get_weights()
model.fit(x, y % 2, epochs=2, verbose=0)
print(
    "unchanged:", all((a == b).all() for a, b in zip(before, base_model.get_weights()))
)

# 2. Fine-tune.
base_model.trainable = True
for layer in base_model.layers[:-2]:
    layer.trainable = False
model.compile(
    optimizer=keras.optimizers.Adam(1e-3),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
history = model.fit(x, y % 2, epochs=2, verbose=0)

# 3. Feature extraction and sequential surgery.
extractor = keras.Model(
    inputs=base.inputs, outputs=[layer.output for layer in base.layers]
)
features = extractor(x[:2])
print([f.shape for f in features])
conv = keras.Model(base.inputs, base.get_layer("last_conv").output)
print(conv.predict(x[:5], verbose=0).shape)
new = keras.Sequential(
    base.layers[:-1] + [layers.Dense(3, activation="softmax", name="new")]
)
new.build((None, 16, 16, 3))
new.compile("sgd", "sparse_categorical_crossentropy")
new.fit(x, y % 3, epochs=1, verbose=0)
base.pop()
base.add(layers.Dense(5, name="five"))
print(base.output_shape)
clone = keras.models.clone_model(new)
clone.set_weights(new.get_weights())
print(np.abs(clone.predict(x, verbose=0) - new.predict(x, verbose=0)).max())
print("final loss:", history.history["loss"][-1])
