# What `fit` is told: first epochs, validation now and then, steps, weights with a split, several steps at once.
import keras
import numpy as np
import tensorflow as tf
from keras import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(50, 4)).astype("float32")
y = rng.integers(0, 3, 50)
weights = rng.uniform(0.2, 2, 50).astype("float32")
ds = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)


def report(name, *args, compiled=None, **kwargs):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(6, "relu"), layers.Dense(3, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy", **{"metrics": ["accuracy"], **(compiled or {})})
    history = model.fit(*args, verbose=0, **kwargs)
    print(name, history.epoch, sorted(history.history))
    for key, values in sorted(history.history.items()):
        for number, value in enumerate(values):
            print(f"{name} {key} {number}: {value:.5f}")


report("first epoch", x, y, initial_epoch=2, epochs=4)
report("now and then", x, y, epochs=4, validation_data=(x, y), validation_freq=[1, 4])
report("steps", x, y, epochs=2, steps_per_epoch=2, batch_size=10)
report("steps of data", ds.repeat(), epochs=2, steps_per_epoch=3, validation_data=ds.repeat(), validation_steps=2)
report("classes", ds, epochs=1, class_weight={0: 0.5, 1: 2.0, 2: 1.0})
report("split", x, y, sample_weight=weights, validation_split=0.3, epochs=2, compiled={"weighted_metrics": ["accuracy"]})
report("three at once", x, y, batch_size=10, epochs=2, compiled={"steps_per_execution": 3})
