# Imbalanced classes: weights for classes and samples, and many metrics.
import keras
import numpy as np

rng = np.random.default_rng(19)
x = rng.normal(size=(80, 6)).astype("float32")
y = (x[:, 0] > 1.2).astype("float32")[:, None]
model = keras.Sequential(
    [
        keras.Input((6,)),
        keras.layers.Dense(8, activation="relu"),
        keras.layers.Dense(1, activation="sigmoid"),
    ]
)
metrics = [
    keras.metrics.TruePositives(name="tp"),
    keras.metrics.FalseNegatives(name="fn"),
    keras.metrics.Precision(name="precision"),
    keras.metrics.Recall(name="recall"),
]
model.compile(keras.optimizers.Adam(1e-2), loss="binary_crossentropy", metrics=metrics)
weights = {0: 1.0, 1: float((y == 0).sum() / (y == 1).sum())}
history = model.fit(x, y, batch_size=20, epochs=3, class_weight=weights, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"recall: {history.history['recall'][-1]:.4f}")
sample_weight = np.where(y[:, 0] > 0, 5.0, 0.5)
history = model.fit(x, y, batch_size=20, sample_weight=sample_weight, verbose=0)
print(f"weighted loss: {history.history['loss'][0]:.5f}")
results = model.evaluate(x, y, verbose=0, return_dict=True)
print(f"fn: {results['fn']:.1f}")
