"""Where training stands, apart from the weights: what a resumed run goes on from."""

from __future__ import annotations

import numpy as np

from ganglion.variables import Variable, draw_seed


class TrainingState:
    """The place of a model's training in its data and its epochs.

    One object, so that models have no attributes such as `epoch` or `order`, which
    subclasses want for themselves.
    """

    def __init__(self) -> None:
        self.position = _counter("position", 0)  # the row at which the next step starts
        self.epoch = _counter("epoch", 0)  # how many are finished
        self.first_bad_step = _counter("first_bad_step", -1)  # its loss was not finite
        # The seed of shuffling, and the number of the pass through the data.
        order = np.array([draw_seed(), 0], "uint32")
        self.order = Variable(order, trainable=False, name="order")
        self.steps_done = 0  # of an epoch that was interrupted
        self.saved_metrics: dict[str, list[np.ndarray]] | None = None
        self.was_loaded = False

    def start_pass(self) -> None:
        """Go back to the first row, in a new order."""
        self.position.array[...] = 0
        self.order.array[1] += 1

    def start_epoch(self, epoch: int) -> None:
        """Go on with this epoch if it was loaded half done, or begin at its start."""
        if not (self.was_loaded and int(self.epoch.array) == epoch):
            self.steps_done, self.saved_metrics = 0, None
            if int(self.position.array):
                self.start_pass()
        self.was_loaded = False


def _counter(name: str, start: int) -> Variable:
    return Variable(np.full((), start, "int32"), trainable=False, name=name)
