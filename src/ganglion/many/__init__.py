"""Many models at once: seeds, rates, folds, ensembles, searches.

Each model is trained as `fit` alone would train it, to the bit; models share the data
and the compiled steps, and every core is busy.

>>> import numpy as np, ganglion as keras
>>> from ganglion import many
>>> def build(rate):
...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
...     model.compile(keras.optimizers.Adam(rate), "mse")
...     return model
>>> x, y = np.eye(2), np.ones((2, 1))
>>> trained = many.fit_many(build, many.grid(rate=[0.1, 0.01]), x, y, verbose=0)
>>> trained.predict(x).shape
(2, 2, 1)
"""

from typing import Any as _Any

from ganglion.many.fitting import Interrupted, fit_many
from ganglion.many.model_set import Member, ModelSet
from ganglion.many.searching import SearchResult, search
from ganglion.many.set_file import load
from ganglion.many.settings import crossed, folds, grid
from ganglion.many.spaces import HyperParameters, integer, uniform
from ganglion.many.using import ensemble, evaluate_many, predict_many

# Names that need scikit-learn, which is not a dependency.
_OF_SKLEARN = (
    "GanglionClassifier",
    "GanglionRegressor",
    "GridSearchCV",
    "at_once",
    "cross_validate",
)


def __getattr__(name: str) -> _Any:
    if name not in _OF_SKLEARN:
        raise AttributeError(f"module 'ganglion.many' has no attribute {name!r}")
    try:
        from ganglion.many import estimators
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("sklearn", "joblib"):
            raise
        raise ImportError(
            f"ganglion.many.{name} needs scikit-learn: pip install scikit-learn."
        ) from None
    return getattr(estimators, name)


__all__ = [
    "HyperParameters",
    "Interrupted",
    "Member",
    "ModelSet",
    "SearchResult",
    "crossed",
    "ensemble",
    "evaluate_many",
    "fit_many",
    "folds",
    "grid",
    "integer",
    "load",
    "predict_many",
    "search",
    "uniform",
]
