"""A stand-in model, and `fit` as the callbacks see it."""

import numpy as np

from ganglion.callbacks import CallbackList
from ganglion.variables import Variable


class Optimizer:
    def __init__(self, learning_rate=0.1):
        self._rate = Variable(np.float32(learning_rate), name="learning_rate")
        self.iterations = Variable(np.int64(0), name="iterations", trainable=False)

    @property
    def learning_rate(self):
        return self._rate

    @learning_rate.setter
    def learning_rate(self, value):
        self._rate.assign(value)


class Model:
    """As much of a model as the callbacks touch."""

    def __init__(self):
        self.stop_training = False
        self.built = True
        self.optimizer = Optimizer()
        self.metrics = []
        self.weights = [np.zeros(2, "float32")]
        self.initial_epoch = 0
        self.saved = []

    def get_weights(self):
        return [weight.copy() for weight in self.weights]

    def set_weights(self, weights):
        self.weights = [weight.copy() for weight in weights]

    def save(self, filepath, overwrite=True):
        self.saved.append(("model", str(filepath)))

    def save_weights(self, filepath, overwrite=True):
        self.saved.append(("weights", str(filepath)))


def fit(model, losses, *callbacks, steps=1, metric="val_loss", begin=0):
    """Go through the hooks of `fit`, one epoch per value of the metric."""
    model.stop_training = False
    every = CallbackList(
        list(callbacks), add_history=True, model=model, verbose=0, epochs=9, steps=steps
    )
    every.on_train_begin()
    for epoch, loss in enumerate(losses, begin):
        every.on_epoch_begin(epoch)
        for step in range(steps):
            every.on_train_batch_begin(step)
            model.weights[0] += 1
            every.on_train_batch_end(step, {"loss": loss})
        every.on_epoch_end(epoch, {metric: loss})
        if every.stop_training:
            break
    every.on_train_end()
    return every.history
