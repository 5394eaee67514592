# Structured data: several named inputs, embeddings, normalization.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
n = 200
data = {
    "age": rng.integers(20, 80, n).astype("float32"),
    "chol": rng.normal(240, 40, n).astype("float32"),
    "sex": rng.integers(0, 2, n),
    "thal": rng.integers(0, 5, n),
}
target = (data["age"] + 10 * data["thal"] > 65).astype("int64")

all_inputs = []
encoded_features = []
for name in ["age", "chol"]:
    feature = keras.Input(shape=(1,), name=name)
    normalizer = layers.Normalization()
    normalizer.adapt(data[name].reshape(-1, 1))
    all_inputs.append(feature)
    encoded_features.append(normalizer(feature))
for name, size in [("sex", 2), ("thal", 5)]:
    feature = keras.Input(shape=(1,), name=name, dtype="int64")
    embedded = layers.Embedding(size, 3)(feature)
    all_inputs.append(feature)
    encoded_features.append(layers.Flatten()(embedded))

all_features = layers.concatenate(encoded_features)
x = layers.Dense(32, activation="relu")(all_features)
x = layers.Dropout(0.1)(x)
output = layers.Dense(1, activation="sigmoid")(x)
model = keras.Model(all_inputs, output)
model.compile(keras.optimizers.Adam(0.01), "binary_crossentropy", metrics=["accuracy"])
history = model.fit(data, target, epochs=8, batch_size=32, verbose=2)
sample = {"age": 60, "chol": 233, "sex": 1, "thal": 2}
input_dict = {name: np.array([value]) for name, value in sample.items()}
print(model.predict(input_dict)[0][0])
print("final loss:", history.history["loss"][-1])
