# Early stopping, a learning rate that falls, a log file, a callback of its own.
import csv

import keras
import numpy as np


class Watch(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None):
        self.batches += 1

    def on_epoch_end(self, epoch, logs=None):
        print(f"loss {epoch}: {logs['loss']:.5f}")
        print(f"rate {epoch}: {float(self.model.optimizer.learning_rate):.6f}")


rng = np.random.default_rng(11)
x, y = rng.normal(size=(40, 3)), rng.normal(size=(40, 1))
model = keras.Sequential(
    [keras.Input((3,)), keras.layers.Dense(6, "relu"), keras.layers.Dense(1)]
)
model.compile(keras.optimizers.SGD(0.2), "mse")
watch = Watch()
model.fit(
    x,
    y,
    batch_size=10,
    epochs=12,
    validation_split=0.2,
    verbose=0,
    callbacks=[
        watch,
        keras.callbacks.ReduceLROnPlateau(monitor="val_loss", factor=0.5, patience=1),
        keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True),
        keras.callbacks.CSVLogger("log.csv"),
    ],
)
with open("log.csv") as file:
    rows = list(csv.DictReader(file))
print("epochs:", len(rows), "batches:", watch.batches)
print(f"test loss: {model.evaluate(x, y, verbose=0):.5f}")
