# Callbacks as people write and combine them.
import keras
import numpy as np
from keras import layers
from keras.callbacks import (
    CSVLogger,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TensorBoard,
    TerminateOnNaN,
)


class CustomCallback(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        keys = list(logs.keys()) if logs else []
        print(f"Starting training; got log keys: {keys}")
        self.losses = []

    def on_epoch_end(self, epoch, logs=None):
        print("The average loss for epoch {} is {:7.2f} ".format(epoch, logs["loss"]))
        lr = float(keras.backend.get_value(self.model.optimizer.learning_rate))
        print(lr, self.params["epochs"], self.params["steps"])

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])
        if batch % 5 == 0:
            print(
                "Up to batch {}, the average loss is {:7.2f}.".format(
                    batch, logs["loss"]
                )
            )

    def on_test_batch_end(self, batch, logs=None):
        pass

    def on_predict_end(self, logs=None):
        print("predicted")


class EarlyStoppingAtMinLoss(keras.callbacks.Callback):
    def __init__(self, patience=0):
        super().__init__()
        self.patience = patience
        self.best_weights = None

    def on_train_begin(self, logs=None):
        self.wait = 0
        self.best = np.inf

    def on_epoch_end(self, epoch, logs=None):
        current = logs.get("loss")
        if np.less(current, self.best):
            self.best = current
            self.wait = 0
            self.best_weights = self.model.get_weights()
        else:
            self.wait += 1
            if self.wait >= self.patience:
                self.model.stop_training = True
                self.model.set_weights(self.best_weights)


def scheduler(epoch, lr):
    return lr if epoch < 2 else lr * 0.9


rng = np.random.default_rng(0)
x = rng.normal(size=(200, 6))
y = x @ rng.normal(size=(6, 1)) + 0.5
model = keras.Sequential()
model.add(keras.Input(shape=(6,)))
model.add(layers.Dense(8, activation="relu"))
model.add(layers.Dense(1))
model.compile(
    optimizer=keras.optimizers.RMSprop(learning_rate=0.01),
    loss="mean_squared_error",
    metrics=["mean_absolute_error"],
)
filepath = "weights.{epoch:02d}-{val_loss:.2f}.weights.h5"
history = model.fit(
    x,
    y,
    batch_size=32,
    epochs=6,
    verbose=0,
    validation_split=0.2,
    callbacks=[
        CustomCallback(),
        EarlyStoppingAtMinLoss(patience=2),
        EarlyStopping(
            monitor="val_loss", patience=3, restore_best_weights=True, verbose=1
        ),
        LearningRateScheduler(scheduler, verbose=1),
        ReduceLROnPlateau(factor=0.2, patience=1, min_lr=1e-4),
        ModelCheckpoint(filepath, save_weights_only=True),
        ModelCheckpoint(
            "best.weights.h5",
            monitor="val_loss",
            mode="min",
            save_best_only=True,
            save_weights_only=True,
            verbose=1,
        ),
        CSVLogger("training.log"),
        TensorBoard(log_dir="logs", histogram_freq=0),
        TerminateOnNaN(),
        LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs["val_loss"])),
    ],
)
model.load_weights("best.weights.h5")
model.predict(x, callbacks=[CustomCallback()], verbose=0)
print(history.history.keys())
res = model.evaluate(x, y, batch_size=128, verbose=0, callbacks=[CustomCallback()])
print("final loss:", history.history["loss"][-1])
