# Submodels by name, shared weights, a second model on a middle layer, summaries.
import keras
import numpy as np

rng = np.random.default_rng(64)
x = rng.normal(size=(30, 8)).astype("float32")
y = rng.integers(0, 2, size=(30, 1)).astype("float32")
trunk = keras.Sequential(name="trunk")
trunk.add(keras.Input((8,)))
trunk.add(keras.layers.Dense(6, activation="relu", name="wide"))
trunk.add(keras.layers.Dense(4, activation="relu", name="narrow"))
head = keras.layers.Dense(1, activation="sigmoid", name="head")
inputs = keras.Input((8,))
model = keras.Model(inputs, head(trunk(inputs)), name="whole")
model.compile("sgd", "binary_crossentropy")
history = model.fit(x, y, batch_size=10, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
lines = []
model.summary(print_fn=lines.append)
print("layers:", [layer.name for layer in model.layers[1:]])
middle = keras.Model(trunk.inputs, trunk.get_layer("wide").output)
print(f"middle: {float(middle.predict(x, verbose=0).mean()):.5f}")
kernel, bias = trunk.get_layer("narrow").get_weights()
trunk.get_layer("narrow").set_weights([kernel * 0.5, bias + 0.1])
print(f"changed loss: {model.evaluate(x, y, verbose=0):.5f}")
config = model.get_config()
twin = keras.Model.from_config(config)
twin.set_weights(model.get_weights())
print(
    "same:", bool(np.allclose(twin.predict(x, verbose=0), model.predict(x, verbose=0)))
)
