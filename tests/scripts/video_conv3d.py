# Clips of frames: Conv3D beside ConvLSTM2D, joined.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(61)
clips = rng.uniform(size=(12, 4, 6, 6, 1)).astype("float32")
labels = (clips[:, -1].mean(axis=(1, 2, 3)) > clips[:, 0].mean(axis=(1, 2, 3))).astype(
    "float32"
)
inputs = keras.Input((4, 6, 6, 1))
space = layers.Conv3D(3, (2, 3, 3), activation="relu")(inputs)
space = layers.MaxPooling3D((1, 2, 2))(space)
space = layers.GlobalAveragePooling3D()(space)
memory = layers.ConvLSTM2D(2, (3, 3), padding="same")(inputs)
memory = layers.GlobalMaxPooling2D()(memory)
outputs = layers.Dense(1, activation="sigmoid")(layers.concatenate([space, memory]))
model = keras.Model(inputs, outputs)
model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
history = model.fit(clips, labels, batch_size=4, epochs=2, verbose=0)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"second loss: {history.history['loss'][1]:.5f}")
