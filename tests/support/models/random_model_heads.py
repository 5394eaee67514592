"""Outputs of random models: an activation, a loss that fits it, labels, metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

UNITS = (2, 3)


@dataclass(frozen=True)
class Head:
    """An output: its size and activation, its loss and labels."""

    units: int
    activation: str
    loss: str
    options: tuple[tuple[str, Any], ...]
    labels: str
    metric: str | None

    def make_loss(self, module: Any) -> Any:
        """Return the loss from our module, or from Keras'."""
        return getattr(module.losses, self.loss)(**dict(self.options), dtype="float64")

    def draw_labels(
        self, rng: np.random.Generator, shape: tuple[int, ...]
    ) -> np.ndarray:
        """Draw labels for outputs of a shape: numbers exact in any float type."""
        if self.labels == "class":
            return rng.integers(0, self.units, (*shape[:-1], 1)).astype("int32")
        if self.labels == "one_hot":
            return np.eye(self.units)[rng.integers(0, self.units, shape[:-1])]
        points = {
            "reals": [0.0, 0.0, -0.0, 1.0, -1.0, 0.5, 2.0],
            "bits": [0.0, 1.0],
            "signs": [-1.0, 1.0],
            "positives": [0.0, 1.0, 3.0, 0.5],
            "shares": [0.0, 0.25, 0.5, 1.0],
        }
        return rng.choice(points[self.labels], shape)


LOGITS = {"from_logits": True}
# loss, options, labels, activations
KINDS: list[tuple[str, dict[str, Any], str, tuple[str, ...]]] = [
    ("MeanSquaredError", {}, "reals", ("linear", "tanh", "relu", "sigmoid")),
    ("MeanAbsoluteError", {}, "reals", ("linear", "relu")),
    ("MeanAbsolutePercentageError", {}, "positives", ("linear", "softplus")),
    ("MeanSquaredLogarithmicError", {}, "positives", ("softplus", "exponential")),
    ("Huber", {"delta": 0.5}, "reals", ("linear", "tanh")),
    ("LogCosh", {}, "reals", ("linear", "tanh")),
    ("CosineSimilarity", {}, "reals", ("linear", "tanh")),
    ("Hinge", {}, "signs", ("linear", "tanh")),
    ("Hinge", {}, "bits", ("linear", "tanh")),
    ("SquaredHinge", {}, "signs", ("linear", "tanh")),
    ("CategoricalHinge", {}, "one_hot", ("linear", "softmax")),
    ("KLDivergence", {}, "shares", ("softmax", "sigmoid")),
    ("Poisson", {}, "positives", ("softplus", "exponential", "sigmoid")),
    ("BinaryCrossentropy", {}, "bits", ("sigmoid", "sigmoid", "hard_sigmoid")),
    ("BinaryCrossentropy", {"label_smoothing": 0.25}, "bits", ("sigmoid",)),
    ("BinaryCrossentropy", LOGITS, "bits", ("linear",)),
    ("BinaryFocalCrossentropy", {}, "bits", ("sigmoid",)),
    ("BinaryFocalCrossentropy", LOGITS, "bits", ("linear",)),
    (
        "BinaryFocalCrossentropy",
        {"apply_class_balancing": True, "gamma": 1.5},
        "bits",
        ("sigmoid",),
    ),
    ("CategoricalCrossentropy", {}, "one_hot", ("softmax", "softmax", "softplus")),
    ("CategoricalCrossentropy", {"label_smoothing": 0.25}, "one_hot", ("softmax",)),
    ("CategoricalCrossentropy", LOGITS, "one_hot", ("linear",)),
    ("CategoricalFocalCrossentropy", {}, "one_hot", ("softmax", "softplus")),
    ("CategoricalFocalCrossentropy", LOGITS, "one_hot", ("linear",)),
    ("SparseCategoricalCrossentropy", {}, "class", ("softmax", "softmax", "softplus")),
    ("SparseCategoricalCrossentropy", LOGITS, "class", ("linear",)),
    ("Dice", {}, "bits", ("sigmoid",)),
    ("Tversky", {"alpha": 0.25, "beta": 0.75}, "bits", ("sigmoid",)),
]
METRICS = {
    "class": ["sparse_categorical_accuracy", "sparse_categorical_crossentropy"],
    "one_hot": ["categorical_accuracy", "categorical_crossentropy", "mse"],
    "bits": ["binary_accuracy", "mae", "mse"],
    "reals": ["mae", "mse", "cosine_similarity"],
    "signs": ["mae", "hinge"],
    "positives": ["mae", "mape"],
    "shares": ["kl_divergence", "mse"],
}


def draw(make: Any) -> Head:
    """Draw an output."""
    loss, options, labels, activations = make.rng.choice(KINDS)
    metric = make.choose(None, *METRICS[labels])
    units = make.choose(*UNITS)
    if labels in ("reals", "bits", "signs") and make.maybe(0.3):
        units = 1
    reduction = make.choose("sum_over_batch_size", "sum_over_batch_size", "sum")
    arguments = tuple({**options, "reduction": reduction}.items())
    activation = make.rng.choice(activations)
    if metric == "categorical_crossentropy" and activation != "softmax":
        metric = "mse"  # that one divides by the sum of a row, which may be rounding
    return Head(units, activation, loss, arguments, labels, metric)
