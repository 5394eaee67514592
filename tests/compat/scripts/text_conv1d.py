# Text classification from integer sequences.
import keras
import numpy as np
from keras import layers

max_features = 200
maxlen = 40
rng = np.random.default_rng(0)
y_train = rng.integers(0, 2, 160)
x_train = [
    list(rng.integers(2 + 90 * label, 100 + 90 * label, rng.integers(5, 60)))
    for label in y_train
]
x_train = keras.utils.pad_sequences(x_train, maxlen=maxlen)

inputs = keras.Input(shape=(None,), dtype="int64")
x = layers.Embedding(max_features, 16)(inputs)
x = layers.Dropout(0.5)(x)
x = layers.Conv1D(16, 7, padding="valid", activation="relu", strides=3)(x)
x = layers.Conv1D(16, 7, padding="valid", activation="relu", strides=3)(x)
x = layers.GlobalMaxPooling1D()(x)
x = layers.Dense(16, activation="relu")(x)
x = layers.Dropout(0.5)(x)
predictions = layers.Dense(1, activation="sigmoid", name="predictions")(x)
model = keras.Model(inputs, predictions)
model.compile(loss="binary_crossentropy", optimizer="adam", metrics=["accuracy"])
model.summary()
history = model.fit(
    x_train, y_train, epochs=3, batch_size=16, validation_data=(x_train, y_train)
)

bag = keras.Sequential(
    [
        keras.Input((maxlen,)),
        layers.Embedding(max_features, 8, mask_zero=False),
        layers.GlobalAveragePooling1D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
bag.compile(
    "adam", "binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")]
)
history = bag.fit(x_train, y_train, epochs=5, batch_size=16, verbose=0)
print(history.history["auc"])
print("final loss:", history.history["loss"][-1])
