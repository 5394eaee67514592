# A PyDataset that makes its batches with several workers.
import keras
import numpy as np


class Shapes(keras.utils.PyDataset):
    def __init__(self, count, size, **kwargs):
        super().__init__(**kwargs)
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        images = rng.uniform(size=(self.size, 6, 6, 1)).astype("float32")
        brightness = images.mean(axis=(1, 2, 3))
        return images, brightness


model = keras.Sequential(
    [
        keras.Input((6, 6, 1)),
        keras.layers.Conv2D(3, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(1),
    ]
)
model.compile("adam", "mse")
train = Shapes(6, 8, workers=2, use_multiprocessing=False, max_queue_size=4)
history = model.fit(
    train, epochs=2, validation_data=Shapes(2, 8), shuffle=False, verbose=0
)
print(f"loss: {history.history['loss'][0]:.6f}")
print(f"validation loss: {history.history['val_loss'][1]:.6f}")
