"""`keras.wrappers.scikit_learn` of Keras 2: functions that build models, as estimators.

    KerasClassifier(build_fn=create_model, epochs=20, batch_size=10, verbose=0)

Its arguments go to the function and to `fit`, `predict` and `evaluate`, each to those
that take it. `keras.wrappers.SKLearnClassifier` is Keras 3's.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from ganglion.models import Sequential
from ganglion.utils import to_categorical

__all__ = ["BaseWrapper", "KerasClassifier", "KerasRegressor"]


class BaseWrapper(BaseEstimator):  # type: ignore[misc]
    """A model and the arguments that it is built and trained with."""

    model: Any

    def __init__(self, build_fn: Any = None, **sk_params: Any) -> None:
        self.build_fn = build_fn
        self.sk_params = sk_params
        self._check(sk_params)

    def _builder(self) -> Any:
        """Return what builds the model: `build_fn`, or a method of a subclass."""
        return self if self.build_fn is None else self.build_fn

    def _check(self, params: dict[str, Any]) -> None:
        methods = [Sequential.fit, Sequential.predict, Sequential.evaluate]
        legal = {"nb_epoch"}.union(
            *(inspect.signature(f).parameters for f in (*methods, self._builder()))
        )
        for name in params.keys() - legal - {"build_fn"}:
            raise ValueError(f"{name} is not a legal parameter")

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {**self.sk_params, "build_fn": self.build_fn}

    def set_params(self, **params: Any) -> Self:
        self._check(params)
        self.build_fn = params.pop("build_fn", self.build_fn)
        self.sk_params.update(params)
        return self

    def _arguments(self, function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return those of the arguments that a function takes."""
        known = inspect.signature(function).parameters
        own = {name: x for name, x in self.sk_params.items() if name in known}
        return {**own, **arguments}

    def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
        """Build the model and train it; return its history."""
        builder = self._builder()
        self.model = builder(**self._arguments(builder, {}))
        arguments = self._arguments(self.model.fit, kwargs)
        if "nb_epoch" in self.sk_params:  # Keras 1
            arguments["epochs"] = self.sk_params["nb_epoch"]
        return self.model.fit(x, self._targets(y), **arguments)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model")

    def _targets(self, y: Any) -> Any:
        return y

    def _predicted(self, x: Any, kwargs: dict[str, Any]) -> Any:
        return self.model.predict(x, **self._arguments(self.model.predict, kwargs))

    def _evaluated(self, x: Any, y: Any, kwargs: dict[str, Any]) -> dict[str, float]:
        arguments = self._arguments(self.model.evaluate, kwargs)
        return self.model.evaluate(x, self._targets(y), return_dict=True, **arguments)


class KerasClassifier(ClassifierMixin, BaseWrapper):  # type: ignore[misc]
    """A classifier for scikit-learn from a function that builds a model."""

    classes_: np.ndarray

    def fit(self, x: Any, y: Any, **kwargs: Any) -> Any:
        y = np.asarray(y)
        is_one_hot = y.ndim == 2 and y.shape[1] > 1
        self.classes_ = np.arange(y.shape[1]) if is_one_hot else np.unique(y)
        return super().fit(x, y, **kwargs)

    def _targets(self, y: Any) -> Any:
        """Return classes as numbers, as rows where the loss needs rows."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            return y
        numbers = np.searchsorted(self.classes_, y)
        loss = getattr(self.model.loss, "__name__", self.model.loss)
        if loss == "categorical_crossentropy":
            return to_categorical(numbers, len(self.classes_))
        return numbers

    def predict(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Return the class of each row."""
        scores = self._predicted(x, kwargs)
        is_binary = scores.shape[-1] == 1
        numbers = (scores > 0.5).astype(int) if is_binary else scores.argmax(-1)
        return self.classes_[numbers]

    def predict_proba(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Return the probability of each class; of two, also where one is computed."""
        scores = self._predicted(x, kwargs)
        is_binary = scores.shape[1] == 1
        return np.hstack([1 - scores, scores]) if is_binary else scores

    def score(self, x: Any, y: Any, **kwargs: Any) -> float:
        logs = self._evaluated(x, y, kwargs)
        for name in ("accuracy", "acc"):
            if name in logs:
                return float(logs[name])
        raise ValueError(
            "The model is not configured to compute accuracy. You should pass "
            '`metrics=["accuracy"]` to the `model.compile()` method.'
        )


class KerasRegressor(RegressorMixin, BaseWrapper):  # type: ignore[misc]
    """A regressor for scikit-learn from a function that builds a model."""

    def predict(self, x: Any, **kwargs: Any) -> np.ndarray:
        """Return the number of each row."""
        return np.squeeze(self._predicted(x, kwargs), axis=-1)

    def score(self, x: Any, y: Any, **kwargs: Any) -> float:
        """Return the negative loss: greater is better."""
        return -float(self._evaluated(x, y, kwargs)["loss"])
