# Monte Carlo dropout: training=True outside of fit, predict on lists, uncertainty.
import keras
import numpy as np
from keras import layers

keras.utils.set_random_seed(812)
x = np.linspace(-2, 2, 120).reshape(-1, 1)
y = np.sin(2 * x) + np.random.normal(0, 0.1, x.shape)
inputs = keras.Input((1,))
h = layers.Dense(32, activation="tanh")(inputs)
h = layers.Dropout(0.1)(h)
h = layers.Dense(32, activation="tanh")(h)
h = layers.Dropout(0.1)(h, training=True)
mean = layers.Dense(1, name="mean")(h)
model = keras.Model(inputs, mean)
model.compile(optimizer="adam", loss="mae", metrics=["mse"])
history = model.fit(x, y, epochs=20, batch_size=16, verbose=0)
samples = np.stack([model(x, training=True) for _ in range(10)])
print(samples.std(axis=0).mean() > 0, samples.mean(axis=0).shape)
again = np.array([model.predict(x, verbose=0) for _ in range(3)])
print(again.std(axis=0).mean() > 0)
one = float(model(np.array([[0.5]]))[0, 0])
print(one)
print("final loss:", history.history["loss"][-1])
