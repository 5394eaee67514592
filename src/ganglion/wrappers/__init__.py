"""`keras.wrappers`: models as estimators of scikit-learn, under Keras' names.

`ganglion.many.GanglionClassifier` and `GanglionRegressor` need no function that builds
a model, and pass all of scikit-learn's checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ganglion.oldpaths import attribute_of

__getattr__ = attribute_of("ganglion.wrappers")  # says what became of Keras 2's names


def _require_sklearn(name: str) -> None:
    raise ImportError(
        f"{name} requires `scikit-learn` to be installed. Run `pip install "
        "scikit-learn` to install it."
    )


if TYPE_CHECKING:
    from ganglion.many.estimators import (
        SKLearnClassifier,
        SKLearnRegressor,
        SKLearnTransformer,
    )
else:
    try:
        from ganglion.many.estimators import (
            SKLearnClassifier,
            SKLearnRegressor,
            SKLearnTransformer,
        )
    except ImportError:  # without scikit-learn, as in Keras: the error comes on use

        class _Missing:
            def __init__(
                self,
                model: Any,
                warm_start: bool = False,
                model_kwargs: Any = None,
                fit_kwargs: Any = None,
            ) -> None:
                _require_sklearn(type(self).__name__)

        class SKLearnClassifier(_Missing):
            """Keras' classifier, which needs scikit-learn."""

        class SKLearnRegressor(_Missing):
            """Keras' regressor, which needs scikit-learn."""

        class SKLearnTransformer(_Missing):
            """Keras' transformer, which needs scikit-learn."""


__all__ = ["SKLearnClassifier", "SKLearnRegressor", "SKLearnTransformer"]
