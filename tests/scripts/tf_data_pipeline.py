# tf.data: slices, map, cache, shuffle, batch and prefetch.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

rng = np.random.default_rng(2)
images = rng.integers(0, 256, size=(40, 6, 6, 3)).astype("uint8")
labels = rng.integers(0, 3, size=(40,)).astype("int64")


def preprocess(image, label):
    image = tf.cast(image, tf.float32) / 255.0
    image = tf.image.flip_left_right(image)
    return image, tf.one_hot(label, depth=3)


def pipeline(images, labels, training):
    ds = tf.data.Dataset.from_tensor_slices((images, labels))
    ds = ds.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE).cache()
    if training:
        ds = ds.shuffle(buffer_size=40)
    return ds.batch(8).prefetch(tf.data.AUTOTUNE)


train, test = (
    pipeline(images[:32], labels[:32], True),
    pipeline(images[32:], labels[32:], False),
)
model = keras.Sequential(
    [
        layers.Input((6, 6, 3)),
        layers.Flatten(),
        layers.Dense(8, "relu"),
        layers.Dense(3),
    ]
)
model.compile(
    optimizer="adam",
    loss=tf.keras.losses.CategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
history = model.fit(train, validation_data=test, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][0]:.5f}")
print("batches:", int(train.cardinality()), len(test))
