# A small convolutional network on images of two classes.
import numpy as np
from keras import Sequential
from keras.layers import Conv2D, Dense, Flatten, Input, MaxPooling2D
from keras.utils import to_categorical

rng = np.random.default_rng(1)
images = rng.uniform(size=(48, 12, 12, 1)).astype("float32")
labels = (images[:, :6].mean(axis=(1, 2, 3)) > images[:, 6:].mean(axis=(1, 2, 3))) * 1
targets = to_categorical(labels, num_classes=2)

model = Sequential(
    [
        Input((12, 12, 1)),
        Conv2D(4, 3, padding="same", activation="relu"),
        MaxPooling2D(2),
        Conv2D(8, (3, 3), strides=2, activation="relu"),
        Flatten(),
        Dense(2, activation="softmax"),
    ]
)
model.compile(loss="categorical_crossentropy", optimizer="rmsprop", metrics=["acc"])
history = model.fit(
    images, targets, epochs=2, batch_size=12, validation_split=0.25, verbose=0
)
for name, values in sorted(history.history.items()):
    print(f"{name}: {values[0]:.5f}")
print("parameters:", model.count_params())
