# Simple MNIST convnet, after the first example of keras.io.
import keras
import numpy as np
from keras import layers

num_classes = 10
input_shape = (28, 28, 1)
rng = np.random.default_rng(0)
y_train = rng.integers(0, num_classes, 256)
x_train = rng.integers(0, 60, (256, 28, 28)).astype("uint8")
for image, label in zip(x_train, y_train):
    image[2 * label : 2 * label + 4] += 150
x_train = x_train.astype("float32") / 255
x_train = np.expand_dims(x_train, -1)
y_train = keras.utils.to_categorical(y_train, num_classes)

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(8, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Conv2D(16, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dropout(0.5),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.summary()
model.compile(loss="categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=64, epochs=2, validation_split=0.1)
score = model.evaluate(x_train, y_train, verbose=0)
print("Test loss:", score[0])
print("Test accuracy:", score[1])
print("final loss:", score[0])
