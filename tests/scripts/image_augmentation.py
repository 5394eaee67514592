# Preprocessing layers before the network; tf.image in the pipeline.
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

rng = np.random.default_rng(42)
images = rng.integers(0, 256, size=(24, 10, 10, 3)).astype("uint8")
labels = rng.integers(0, 2, size=24).astype("float32")


def augment(image, label):
    image = tf.image.convert_image_dtype(image, tf.float32)
    image = tf.image.central_crop(image, 0.8)
    image = tf.image.adjust_contrast(image, 1.5)
    image = tf.image.per_image_standardization(image)
    return tf.image.rot90(image), label


dataset = (
    tf.data.Dataset.from_tensor_slices((images, labels))
    .map(augment, num_parallel_calls=2)
    .batch(6)
    .prefetch(buffer_size=tf.data.AUTOTUNE)
)
print("image:", dataset.element_spec[0].shape[-1])
model = keras.Sequential(
    [
        layers.Input((8, 8, 3)),
        layers.CenterCrop(6, 6),
        layers.Conv2D(4, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(1, activation="sigmoid"),
    ]
)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(dataset, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
