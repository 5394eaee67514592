# Features out of a Sequential within a Sequential, whose `output` is that of its call.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(12, 8, 8, 3)).astype("float32")
y = rng.normal(size=(12, 2)).astype("float32")
base = keras.Sequential(
    [
        keras.Input((8, 8, 3)),
        layers.Conv2D(4, 3, activation="relu"),
        layers.GlobalMaxPooling2D(),
    ],
    name="base",
)
outer = keras.Sequential(
    [keras.Input((8, 8, 3)), layers.Rescaling(0.5), base, layers.Dense(2)], name="outer"
)
outer.compile("sgd", "mse")
history = outer.fit(x, y, epochs=2, batch_size=4, verbose=0)
print(f"loss: {history.history['loss'][-1]:.5f}")
features = keras.Model(outer.inputs, outer.get_layer("base").output)
print(f"features: {features.predict(x, verbose=0).sum():.5f}")
both = keras.Model(outer.inputs, [outer.layers[0].output, outer.outputs[0]])
print(f"scaled: {float(np.abs(both.predict(x, verbose=0)[0]).sum()):.5f}")
alone = keras.Model(base.inputs, base.layers[0].output)
print(f"of the base itself: {alone.predict(x, verbose=0).sum():.5f}")
print(features.output_shape, [layer.name for layer in outer.layers][1:2])
