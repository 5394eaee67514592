"""`tf.train.ExponentialMovingAverage`: averages of variables that training moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.objects import Variable


class ExponentialMovingAverage:
    """Averages in variables of their own, each of which begins as its variable.

    >>> from ganglion.compat.tensorflow.objects import Variable
    >>> variable, averages = Variable(1.0), ExponentialMovingAverage(0.5)
    >>> averages.apply([variable])
    >>> _ = variable.assign(3.0)
    >>> averages.apply([variable])
    >>> float(averages.average(variable))
    2.0
    """

    def __init__(
        self,
        decay: float,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        if zero_debias:
            raise NotImplementedError(
                "tf.train.ExponentialMovingAverage: `zero_debias` concerns averages of "
                "tensors; variables begin as they are. Leave it out."
            )
        self.decay, self.name, self._num_updates = decay, name, num_updates
        self._averages: dict[int, tuple[Any, Variable]] = {}

    def apply(self, var_list: Iterable[Any] | None = None) -> None:
        """Move the averages toward the variables, which have one from here on."""
        if var_list is None:
            raise ValueError(
                "tf.train.ExponentialMovingAverage.apply: name the variables, as in "
                "`apply(model.trainable_variables)`."
            )
        decay: Any = self.decay
        if self._num_updates is not None:
            steps = ops.cast(self._num_updates, "float32")
            decay = ops.minimum(decay, (1.0 + steps) / (10.0 + steps))
        for variable in var_list:
            if id(variable) not in self._averages:
                copy = Variable(np.array(variable), trainable=False, name=self.name)
                self._averages[id(variable)] = variable, copy
            average = self._averages[id(variable)][1]
            average.assign_sub((1.0 - decay) * (average - variable))

    def average(self, var: Any) -> Variable | None:
        """Return the variable that holds the average of another, if there is one."""
        return self._averages.get(id(var), (None, None))[1]

    def average_name(self, var: Any) -> str:
        """Return the name of that variable."""
        return f"{var.name}/{self.name}"
