"""Models as estimators of scikit-learn, and its searches with all models at once.

This module needs scikit-learn; `ganglion.many` and `ganglion.wrappers` import it when
one of its names is requested.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from sklearn import model_selection
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from ganglion import config, layers, ops
from ganglion.many.fitting import kept_random_numbers
from ganglion.models import Model, Sequential, clone_model
from ganglion.training.data_adapters import count
from ganglion.training.sharing import SharedSteps
from ganglion.utils.session import set_random_seed

_building = threading.Lock()  # held from setting a seed to the last draw from it


# ---- all models at once --------------------------------------------------------------


class _Search:
    """The steps that the estimators of a search share; None outside of a search."""

    steps: SharedSteps | None = None


_current = _Search()


@contextmanager
def at_once(threads: int | None = None) -> Iterator[None]:
    """Let scikit-learn fit estimators in threads, which share compiled steps.

    Args:
        threads: How many; all by default. A negative number counts from the end as
            `n_jobs` does: -1 for all, -2 for all but one.
    """
    import joblib

    count = config.threads()
    if isinstance(threads, int) and threads < 0:
        count = max(1, count + 1 + threads)
    elif threads is not None:
        count = config.threads_of(threads, "threads")
    before, _current.steps = _current.steps, SharedSteps()
    try:
        with joblib.parallel_config(backend="threading", n_jobs=count):
            yield
    finally:
        _current.steps = before


class GridSearchCV(model_selection.GridSearchCV):  # type: ignore[misc]
    """scikit-learn's `GridSearchCV`, with all settings and folds trained at once.

    The answers are the same; `n_jobs` is the number of threads, all by default.
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:  # noqa: N803
        """Search, as scikit-learn does."""
        with at_once(self.n_jobs):
            return super().fit(X, y, **params)


def cross_validate(estimator: Any, X: Any, y: Any = None, **arguments: Any) -> Any:  # noqa: N803
    """scikit-learn's `cross_validate`, with all folds trained at once."""
    with at_once(arguments.pop("n_jobs", None)):
        return model_selection.cross_validate(estimator, X, y, **arguments)


# ---- estimators ----------------------------------------------------------------------


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """The base of all estimators: a model that `fit` builds, and its history."""

    model_: Any
    history_: dict[str, list[Any]]

    def _fit_model(
        self, build: Callable[[], Any], seed: int | None, *data: Any, **arguments: Any
    ) -> None:
        """Build a model and train it; inside of a search, on a single thread."""
        steps = _current.steps
        kept = nullcontext() if seed is None else kept_random_numbers()
        with _building, kept:
            if seed is not None:
                set_random_seed(seed)
            model = build()
        if steps is not None:
            model._step_cache.share(steps)
        limit = nullcontext() if steps is None else config.limited_threads(1)
        with limit:
            history = model.fit(*data, **arguments)
        self.model_, self.history_ = model, history.history

    def _outputs(self, X: Any) -> np.ndarray:  # noqa: N803
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, allow_nd=True)  # noqa: N806
        return np.asarray(self.model_.predict(X, verbose=0))


class _GanglionEstimator(_Estimator):
    """A network of dense layers, or the user's own, with the arguments of `fit`."""

    _loss = ""
    _last: str | None = None
    # `fit` passes it to the model: it can be routed, as `set_fit_request` requests.
    __metadata_request__fit = {"sample_weight": None}  # noqa: RUF012 (scikit-learn's)

    def __init__(
        self,
        build: Callable[..., Any] | None = None,
        *,
        build_kwargs: Mapping[str, Any] | None = None,
        hidden: tuple[int, ...] = (64,),
        activation: str = "relu",
        learning_rate: float = 0.01,
        epochs: int = 100,
        batch_size: int = 32,
        random_state: Any = None,
        fit_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.build = build
        self.build_kwargs = build_kwargs
        self.hidden = hidden
        self.activation = activation
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.random_state = random_state
        self.fit_kwargs = fit_kwargs

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments; with `deep`, those of the builder as `build__name`."""
        params: dict[str, Any] = super().get_params(deep=False)
        if deep:
            arguments = self.build_kwargs
            inner = arguments if isinstance(arguments, Mapping) else {}
            params |= {f"build__{name}": value for name, value in inner.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set arguments; `build__name` is an argument of the builder."""
        own = {k: v for k, v in params.items() if not k.startswith("build__")}
        inner = {
            k.removeprefix("build__"): v for k, v in params.items() if k not in own
        }
        super().set_params(**own)
        if inner:
            self.build_kwargs = {**(self.build_kwargs or {}), **inner}
        return self

    def _train(self, x: np.ndarray, y: np.ndarray, outputs: int, extra: Any) -> None:
        if self.build is not None and not callable(self.build):
            raise TypeError(
                "`build` must be a function of the shape of a row and the number of "
                f"outputs that returns a compiled model, not {self.build!r:.60}."
            )

        def build() -> Any:
            make = self.build or self._dense
            model = make(x.shape[1:], outputs, **(self.build_kwargs or {}))
            return self._checked(model, outputs)

        draws = check_random_state(self.random_state)
        seed = int(draws.randint(0, 2**31 - 1))
        arguments = {"epochs": self.epochs, "verbose": 0, **(self.fit_kwargs or {})}
        size = count(self.batch_size, "batch_size")
        arguments["batch_size"] = min(32 if size is None else size, len(x))
        self._fit_model(build, seed, x, y, **self._for_fit(arguments | extra, y))

    def _for_fit(self, arguments: dict[str, Any], y: np.ndarray) -> dict[str, Any]:
        return arguments

    def _checked(self, model: Any, outputs: int) -> Any:
        """Refuse a model that has not as many outputs as it was built for."""
        if not isinstance(model, Model) or not model.compiled:
            raise TypeError(
                f"`build` must return a compiled model, not {model!r:.60}: call "
                "`model.compile(optimizer, loss)` in it."
            )
        shape = model.output_shape if model._network is not None else None
        if isinstance(shape, tuple) and shape[-1] not in (None, outputs):
            raise ValueError(
                f"The model that `build` returned has {shape[-1]} outputs, but it is "
                f"to have {outputs}, the number that `build` gets as its second "
                "argument: one for each class, or each target."
            )
        return model

    def _dense(self, shape: tuple[int, ...], outputs: int, **unknown: Any) -> Any:
        from ganglion.optimizers import Adam

        if unknown:
            raise TypeError(
                f"`build_kwargs` ({', '.join(unknown)}) are for `build`, and there is "
                "none: a network of dense layers has `hidden`, `activation` and "
                "`learning_rate`."
            )
        if not isinstance(self.hidden, (tuple, list)):
            raise TypeError(
                f"`hidden` must be the sizes of all layers, as in (64, 64), not "
                f"{self.hidden!r}."
            )
        stack = [layers.Dense(n, activation=self.activation) for n in self.hidden]
        last = layers.Dense(outputs, activation=self._last)
        flat = [layers.Flatten()] if len(shape) > 1 else []
        model = Sequential([layers.Input(shape), *flat, *stack, last])
        model.compile(Adam(self.learning_rate), self._loss)
        return model


class GanglionClassifier(ClassifierMixin, _GanglionEstimator):  # type: ignore[misc]
    """A classifier: a network of dense layers, or what `build` returns.

    The model has an output for each class, and a loss that takes class numbers. The
    arguments are those of `GanglionRegressor`.
    """

    _loss, _last = "sparse_categorical_crossentropy", "softmax"

    def fit(self, X: Any, y: Any, **fit_kwargs: Any) -> Any:  # noqa: N803
        """Train on rows and their classes."""
        X, y = validate_data(self, X, y, allow_nd=True, dtype="float32")  # noqa: N806
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "Classifier can't train when only one class is present: "
                f"{self.classes_[0]!r}."
            )
        self._train(X, numbers.astype("int32"), len(self.classes_), fit_kwargs)
        return self

    def _for_fit(self, arguments: dict[str, Any], y: np.ndarray) -> dict[str, Any]:
        """Return arguments whose `class_weight` has numbers instead of classes."""
        weights = arguments.get("class_weight")
        if weights is None:
            return arguments
        numbers = {label: number for number, label in enumerate(self.classes_)}
        if not isinstance(weights, Mapping):  # "balanced"
            each = compute_class_weight(weights, classes=np.arange(len(numbers)), y=y)
            weights = dict(zip(numbers, each, strict=True))
        if (
            self.classes_.dtype.kind not in "biuf"
            and not numbers.keys() & weights.keys()
        ):
            numbers = {n: n for n in range(len(numbers))}  # no class is a number
        unknown = [label for label in weights if label not in numbers]
        if unknown:
            raise ValueError(
                f"`class_weight` has {unknown[0]!r}, which is no class; the classes "
                f"are {self.classes_.tolist()!r:.200}."
            )
        by_number = {numbers[label]: float(w) for label, w in weights.items()}
        return {**arguments, "class_weight": by_number}

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the probability of each class, in the order of `classes_`."""
        outputs = self._outputs(X)
        has_logits = getattr(self.model_.loss, "from_logits", False)
        return np.asarray(ops.softmax(outputs)) if has_logits else outputs

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the most probable class of each row."""
        chosen = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])


class GanglionRegressor(RegressorMixin, _GanglionEstimator):  # type: ignore[misc]
    """A regressor: a network of dense layers, or what `build` returns.

    Args:
        build: A function `build(shape, outputs, ...)` that returns a compiled model;
            dense layers by default.
        build_kwargs: More arguments for it; `build__units=8` sets one of them, in a
            grid, say.
        hidden: The sizes of the dense layers, without `build`.
        activation: Their activation, without `build`.
        learning_rate: Of Adam, without `build`.
        epochs: How often the data is seen.
        batch_size: Rows a step.
        random_state: The seed of weights, order and dropout.
        fit_kwargs: More arguments for `fit`: callbacks, validation_split.
    """

    _loss = "mse"

    def fit(self, X: Any, y: Any, **fit_kwargs: Any) -> Any:  # noqa: N803
        """Train on rows and their targets, a number or several for each."""
        X, y = validate_data(  # noqa: N806
            self,
            X,
            y,
            allow_nd=True,
            dtype="float32",
            multi_output=True,
            y_numeric=True,
        )
        self._ndim = y.ndim
        columns = y.reshape(len(y), -1).astype("float32")
        self._train(X, columns, columns.shape[1], fit_kwargs)
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the number, or the numbers, of each row."""
        outputs = self._outputs(X).astype("float64")  # as scikit-learn's regressors
        return outputs[:, 0] if self._ndim == 1 else outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


# ---- Keras' own names ----------------------------------------------------------------


class _KerasEstimator(_Estimator):
    """The base of the estimators of `keras.wrappers`."""

    def __init__(
        self,
        model: Any,
        warm_start: bool = False,
        model_kwargs: Mapping[str, Any] | None = None,
        fit_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = model
        self.warm_start = warm_start
        self.model_kwargs = model_kwargs
        self.fit_kwargs = fit_kwargs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags

    def __sklearn_clone__(self) -> Any:
        return type(self)(
            self.model, self.warm_start, self.model_kwargs, self.fit_kwargs
        )

    def fit(self, X: Any, y: Any, **kwargs: Any) -> Any:  # noqa: N803
        """Train the model, or a clone of it."""
        X, y = validate_data(self, X, y, allow_nd=True, multi_output=True)  # noqa: N806
        if isinstance(self, ClassifierMixin) or (y.ndim == 2 and y.shape[1] == 1):
            y = column_or_1d(y, warn=True)
        y = self._encoded(np.asarray(y))

        def build() -> Any:
            model = self._model_for(X, y)
            if not model.compiled or not model.loss or model.optimizer is None:
                raise RuntimeError(
                    "Given model needs to be compiled, and have a loss and an "
                    "optimizer."
                )
            return model

        arguments = {"verbose": 0, **(self.fit_kwargs or {}), **kwargs}
        self._fit_model(build, None, X, y, **arguments)
        return self

    def _model_for(self, x: Any, y: Any) -> Any:
        if self.warm_start and hasattr(self, "model_"):
            return self.model_
        if isinstance(self.model, Model):
            return self.model if self.warm_start else clone_model(self.model)
        return self.model(X=x, y=y, **(self.model_kwargs or {}))

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        """Return targets as the model takes them: rows and columns."""
        type_of_target(y, raise_unknown=True)
        self._ndim = y.ndim
        return y.reshape(len(y), -1)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return what the model predicts for each row."""
        outputs = self._outputs(X)
        is_column = self._ndim == 1 and outputs.ndim == 2
        return np.squeeze(outputs, axis=1) if is_column else outputs


class SKLearnClassifier(ClassifierMixin, _KerasEstimator):  # type: ignore[misc]
    """Keras' classifier: targets are one-hot. Arguments as `SKLearnRegressor`."""

    def _encoded(self, y: np.ndarray) -> np.ndarray:
        kind = type_of_target(y, raise_unknown=True)
        if kind not in ("binary", "multiclass"):
            raise ValueError(
                "Only binary and multiclass target types are supported. Target type: "
                f"{kind}"
            )
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) == 1:
            raise ValueError("Classifier can't train when only one class is present.")
        return np.eye(len(self.classes_), dtype="float32")[numbers.reshape(-1)]

    def decision_function(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the outputs of the model."""
        return self._outputs(X)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the class of each row."""
        chosen = self._outputs(X).argmax(axis=-1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


class SKLearnRegressor(RegressorMixin, _KerasEstimator):  # type: ignore[misc]
    """Keras' regressor.

    Args:
        model: A compiled model, of which a clone is trained; or a function of `X`, `y`
            and more that returns one.
        warm_start: Whether to continue with the weights of the previous fit.
        model_kwargs: More arguments for the function.
        fit_kwargs: Arguments for the model's `fit`.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags


class SKLearnTransformer(TransformerMixin, _KerasEstimator):  # type: ignore[misc]
    """Keras' transformer: what the model returns. Arguments as `SKLearnRegressor`."""

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the outputs of the model."""
        return self._outputs(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
