# tf.keras as of TensorFlow 2.3: lr=, fit_generator, experimental preprocessing.
import numpy as np
from tensorflow.keras.layers import Dense, Flatten, LeakyReLU
from tensorflow.keras.models import Sequential
from tensorflow.keras.optimizers import Adam
from tensorflow.keras.preprocessing.image import ImageDataGenerator
from tensorflow.keras.utils import to_categorical

rng = np.random.RandomState(26)
x = rng.uniform(0, 255, size=(24, 6, 6, 3)).astype("float32")
y = to_categorical(rng.randint(0, 2, size=24))
flow = ImageDataGenerator(rescale=1.0 / 255).flow(x, y, batch_size=8, shuffle=False)
model = Sequential()
model.add(Flatten(input_shape=(6, 6, 3)))
model.add(Dense(6))
model.add(LeakyReLU(alpha=0.1))
model.add(Dense(2, activation="softmax"))
model.compile(Adam(lr=0.01, decay=1e-3), "categorical_crossentropy", metrics=["acc"])
history = model.fit_generator(flow, steps_per_epoch=3, epochs=2, verbose=0)
print("loss: %.5f" % history.history["loss"][0])
print("accuracy: %.4f" % history.history["acc"][1])
print("predictions:", model.predict_generator(flow, steps=3).shape)
