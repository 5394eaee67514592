# A forecast on a graph: windows zipped with their targets, sizes taken from tf.shape.
import keras
import numpy as np
import tensorflow as tf
from keras import layers
from keras.utils import timeseries_dataset_from_array

NODES, PAST, AHEAD = 4, 5, 2
SOURCES, TARGETS = [0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 2, 1, 3, 2]


def windows(series, shuffle):
    past = timeseries_dataset_from_array(
        series[:-AHEAD, :, None], None, sequence_length=PAST, batch_size=6
    )
    future = timeseries_dataset_from_array(
        series[PAST:], None, sequence_length=AHEAD, batch_size=6
    )
    pairs = tf.data.Dataset.zip((past, future))
    return (pairs.shuffle(50) if shuffle else pairs).prefetch(2).cache()


class Neighbours(layers.Layer):
    def __init__(self, width):
        super().__init__()
        self.kernel = self.add_weight(shape=(1, width), initializer="glorot_uniform")

    def call(self, x):
        around = tf.math.unsorted_segment_mean(
            tf.gather(x, TARGETS), SOURCES, num_segments=NODES
        )
        parts = [tf.matmul(part, self.kernel) for part in (x, around)]
        return tf.concat(parts, axis=-1)


class Forecast(layers.Layer):
    def __init__(self):
        super().__init__()
        self.neighbours = Neighbours(3)
        self.memory = layers.LSTM(4, activation="relu")
        self.head = layers.Dense(AHEAD)

    def call(self, x):
        x = self.neighbours(tf.transpose(x, [2, 0, 1, 3]))
        sizes = tf.shape(x)
        nodes, rows = sizes[0], sizes[1]
        x = tf.reshape(x, (nodes * rows, sizes[2], sizes[3]))
        x = self.head(self.memory(x))
        return tf.transpose(tf.reshape(x, (nodes, rows, AHEAD)), [1, 2, 0])


series = np.random.RandomState(0).rand(50, NODES).astype("float32")
train, rest = windows(series[:36], True), windows(series[36:], False)
inputs = keras.Input((PAST, NODES, 1))
model = keras.Model(inputs, Forecast()(inputs))
model.compile(keras.optimizers.RMSprop(0.002), "mse")
history = model.fit(train, validation_data=rest, epochs=2, verbose=0).history
for name in ("loss", "val_loss"):
    print(f"{name}: {history[name][-1]:.5f}")
past, future = next(rest.as_numpy_iterator())
error = np.abs(model.predict(past, verbose=0) - future)
print(f"loss of the first batch: {error.mean():.5f}")
