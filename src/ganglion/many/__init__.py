"""Many models at once: seeds, rates, folds, ensembles, searches.

Each model is trained as `fit` alone would train it, to the bit; what they have in
common (the data, the compiled steps) is there once, and every core is busy.

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

from ganglion.many.fitting import Interrupted, fit_many
from ganglion.many.model_set import Member, ModelSet
from ganglion.many.set_file import load
from ganglion.many.settings import crossed, folds, grid
from ganglion.many.using import ensemble, evaluate_many, predict_many

__all__ = [
    "Interrupted",
    "Member",
    "ModelSet",
    "crossed",
    "ensemble",
    "evaluate_many",
    "fit_many",
    "folds",
    "grid",
    "load",
    "predict_many",
]
