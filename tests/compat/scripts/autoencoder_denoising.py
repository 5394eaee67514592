# Convolutional autoencoder for image denoising.
import numpy as np
from keras import layers
from keras.models import Model


def noise(array):
    noisy_array = array + 0.4 * np.random.normal(loc=0.0, scale=1.0, size=array.shape)
    return np.clip(noisy_array, 0.0, 1.0)


np.random.seed(0)
train_data = np.zeros((96, 28, 28, 1), "float32")
for i in range(len(train_data)):
    train_data[i, i % 14 : i % 14 + 8, 6:20] = 1.0
noisy_train_data = noise(train_data)

input = layers.Input(shape=(28, 28, 1))
x = layers.Conv2D(8, (3, 3), activation="relu", padding="same")(input)
x = layers.MaxPooling2D((2, 2), padding="same")(x)
x = layers.Conv2D(8, (3, 3), activation="relu", padding="same")(x)
x = layers.MaxPooling2D((2, 2), padding="same")(x)
x = layers.Conv2DTranspose(8, (3, 3), strides=2, activation="relu", padding="same")(x)
x = layers.Conv2DTranspose(8, (3, 3), strides=2, activation="relu", padding="same")(x)
x = layers.Conv2D(1, (3, 3), activation="sigmoid", padding="same")(x)

autoencoder = Model(input, x)
autoencoder.compile(optimizer="adam", loss="binary_crossentropy")
autoencoder.summary()
autoencoder.fit(
    x=train_data,
    y=train_data,
    epochs=2,
    batch_size=32,
    shuffle=True,
    validation_data=(train_data, train_data),
)
history = autoencoder.fit(
    x=noisy_train_data,
    y=train_data,
    epochs=3,
    batch_size=32,
    shuffle=True,
    validation_data=(noisy_train_data, train_data),
)
predictions = autoencoder.predict(noisy_train_data)
print(predictions.shape)
print("final loss:", history.history["loss"][-1])
