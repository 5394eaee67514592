# A convolutional autoencoder; the encoder is used by itself afterwards.
import keras
import numpy as np
from keras import layers

rng = np.random.default_rng(18)
images = rng.uniform(size=(32, 8, 8, 1)).astype("float32")
noisy = np.clip(images + rng.normal(scale=0.2, size=images.shape), 0, 1).astype(
    "float32"
)

inputs = keras.Input((8, 8, 1))
h = layers.Conv2D(6, 3, activation="relu", padding="same")(inputs)
code = layers.MaxPooling2D(2, padding="same", name="code")(h)
h = layers.Conv2DTranspose(6, 3, strides=2, activation="relu", padding="same")(code)
outputs = layers.Conv2D(1, 3, activation="sigmoid", padding="same")(h)
autoencoder = keras.Model(inputs, outputs)
autoencoder.compile("adam", "binary_crossentropy")
history = autoencoder.fit(
    noisy,
    images,
    epochs=2,
    batch_size=8,
    validation_data=(noisy[:8], images[:8]),
    verbose=0,
)
print(f"loss: {history.history['loss'][0]:.5f}")
print(f"validation loss: {history.history['val_loss'][0]:.5f}")
encoder = keras.Model(autoencoder.input, autoencoder.get_layer("code").output)
print("code:", encoder.predict(noisy[:2], verbose=0).shape)
