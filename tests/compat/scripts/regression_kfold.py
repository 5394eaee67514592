# House prices: normalise, k-fold, Python lists, mae; the book's chapter 4.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
train_data = rng.normal(5, 3, (120, 13))
train_targets = train_data @ rng.normal(size=13) + 22
mean = train_data.mean(axis=0)
train_data -= mean
std = train_data.std(axis=0)
train_data /= std


def build_model():
    model = keras.Sequential(
        [
            layers.Dense(32, activation="relu"),
            layers.Dense(32, activation="relu"),
            layers.Dense(1),
        ]
    )
    model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
    return model


k = 3
num_val_samples = len(train_data) // k
all_scores = []
for i in range(k):
    print("Processing fold #", i)
    val_data = train_data[i * num_val_samples : (i + 1) * num_val_samples]
    val_targets = train_targets[i * num_val_samples : (i + 1) * num_val_samples]
    partial_train_data = np.concatenate(
        [train_data[: i * num_val_samples], train_data[(i + 1) * num_val_samples :]],
        axis=0,
    )
    partial_train_targets = np.concatenate(
        [
            train_targets[: i * num_val_samples],
            train_targets[(i + 1) * num_val_samples :],
        ],
        axis=0,
    )
    model = build_model()
    history = model.fit(
        partial_train_data,
        partial_train_targets,
        validation_data=(val_data, val_targets),
        epochs=5,
        batch_size=16,
        verbose=0,
    )
    val_mse, val_mae = model.evaluate(val_data, val_targets, verbose=0)
    all_scores.append(val_mae)
print(np.mean(all_scores))
predictions = model.predict(val_data)
print(predictions[0])
y = [[0.0], [1.0], [1.0], [0.0]]
xor = keras.Sequential(
    [keras.Input(shape=(2,)), layers.Dense(8, "tanh"), layers.Dense(1, "sigmoid")]
)
xor.compile(
    optimizer=keras.optimizers.SGD(1.0),
    loss="binary_crossentropy",
    metrics=["accuracy"],
)
xor.fit(
    np.array([[0, 0], [0, 1], [1, 0], [1, 1]]),
    np.array(y),
    epochs=50,
    batch_size=4,
    verbose=0,
)
print(xor.predict(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]), verbose=0).round())
print("final loss:", history.history["loss"][-1])
