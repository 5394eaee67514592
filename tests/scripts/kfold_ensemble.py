# Cross-validation: a model a fold, then the mean of their predictions.
import keras
import numpy as np

rng = np.random.default_rng(51)
x = rng.normal(size=(45, 6))
mean, std = x.mean(axis=0), x.std(axis=0)
x = (x - mean) / std
y = x @ rng.normal(size=(6, 1)) + 0.5


def build_model():
    model = keras.Sequential(
        [
            keras.layers.Input((6,)),
            keras.layers.Dense(8, activation="relu"),
            keras.layers.Dense(1),
        ]
    )
    model.compile(optimizer="rmsprop", loss="mse", metrics=["mae"])
    return model


models, folds = [], np.array_split(np.arange(45), 3)
for number, held_out in enumerate(folds):
    rest = np.setdiff1d(np.arange(45), held_out)
    model = build_model()
    history = model.fit(x[rest], y[rest], epochs=2, batch_size=10, verbose=0)
    print(f"loss {number}: {history.history['loss'][0]:.5f}")
    mse, mae = model.evaluate(x[held_out], y[held_out], verbose=0)
    print(f"mae {number}: {mae:.5f}")
    models.append(model)
inputs = keras.Input((6,))
ensemble = keras.Model(
    inputs, keras.layers.average([model(inputs) for model in models])
)
print(f"mean: {ensemble.predict(x, verbose=0).mean():.5f}")
