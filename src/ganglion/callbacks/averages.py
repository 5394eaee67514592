"""The callback that evaluates with averaged weights."""

from __future__ import annotations

from typing import Any

from ganglion.callbacks.base import Callback, Logs


class SwapEMAWeights(Callback):
    """Uses the averaged weights of the optimizer while evaluating.

    The optimizer must be made with ``use_ema=True``.

    Args:
        swap_on_epoch: Whether to swap at the end of an epoch, too, and back at the
            beginning of the next, so that later callbacks save the averaged weights.

    >>> SwapEMAWeights(swap_on_epoch=True).swap_on_epoch
    True
    """

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._averaged = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._pairs()

    def get_state(self) -> dict[str, Any]:
        return {"averaged": self._averaged}

    def set_state(self, state: dict[str, Any]) -> None:
        self._averaged = bool(state["averaged"])

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        if self.swap_on_epoch:
            self._use_averages(False)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if not self.swap_on_epoch:
            return
        self._use_averages(True)
        if epoch == (self.params or {}).get("epochs", 0) - 1:
            # At the end `fit` copies the averages into the weights: they must be equal.
            for weight, average in self._pairs():
                average.assign(weight.numpy())

    def on_test_begin(self, logs: Logs | None = None) -> None:
        self._use_averages(True)

    def on_test_end(self, logs: Logs | None = None) -> None:
        self._use_averages(False)

    on_predict_begin, on_predict_end = on_test_begin, on_test_end

    def _use_averages(self, wanted: bool) -> None:
        if self._averaged == wanted:
            return
        for weight, average in self._pairs():
            before = weight.numpy()
            weight.assign(average.numpy())
            average.assign(before)
        self._averaged = wanted

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Return weights and averages; refuse an optimizer that has none."""
        optimizer = getattr(self.model, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        several = getattr(optimizer, "optimizers", [optimizer])
        averaging = [each for each in several if getattr(each, "use_ema", False)]
        if not averaging:
            raise ValueError(
                "SwapEMAWeights must be used when `use_ema=True` is set on the "
                "optimizer (of several, on at least one): without it, there are no "
                "averaged weights."
            )
        return [pair for each in averaging for pair in each.averages()]
