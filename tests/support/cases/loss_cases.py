"""Every loss with its arguments and the labels and predictions it takes."""

import numpy as np
import pytest
from label_draws import (
    CLASSES,
    bit_probabilities,
    bits,
    class_numbers,
    one_hot,
    positives,
    probabilities,
    reals,
    signs,
)

# (class, arguments, labels, predictions)
CASES = [
    ("MeanSquaredError", {}, reals, reals),
    ("MeanAbsoluteError", {}, reals, reals),
    ("MeanAbsolutePercentageError", {}, positives, reals),
    ("MeanSquaredLogarithmicError", {}, positives, positives),
    ("CosineSimilarity", {}, reals, reals),
    ("Huber", {"delta": 0.7}, reals, reals),
    ("LogCosh", {}, reals, reals),
    ("Hinge", {}, bits, reals),
    ("Hinge", {}, signs, reals),
    ("SquaredHinge", {}, signs, reals),
    ("CategoricalHinge", {}, one_hot, reals),
    ("KLDivergence", {}, probabilities, probabilities),
    ("Poisson", {}, positives, positives),
    ("BinaryCrossentropy", {}, bits, bit_probabilities),
    (
        "BinaryCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        bits,
        reals,
    ),
    ("BinaryFocalCrossentropy", {}, bits, bit_probabilities),
    (
        "BinaryFocalCrossentropy",
        {
            "apply_class_balancing": True,
            "alpha": 0.3,
            "gamma": 1.5,
            "from_logits": True,
            "label_smoothing": 0.2,
        },
        bits,
        reals,
    ),
    ("CategoricalCrossentropy", {}, one_hot, probabilities),
    (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        one_hot,
        reals,
    ),
    ("CategoricalFocalCrossentropy", {}, one_hot, probabilities),
    (
        "CategoricalFocalCrossentropy",
        {"from_logits": True, "alpha": 0.4, "gamma": 3.0, "label_smoothing": 0.1},
        one_hot,
        reals,
    ),
    ("Dice", {}, bits, bit_probabilities),
    ("Dice", {"axis": [-1]}, bits, bit_probabilities),
    ("Tversky", {"alpha": 0.3, "beta": 0.7}, bits, bit_probabilities),
    ("SparseCategoricalCrossentropy", {}, class_numbers, probabilities),
    ("SparseCategoricalCrossentropy", {"from_logits": True}, class_numbers, reals),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 1},
        class_numbers,
        reals,
    ),
    ("CategoricalGeneralizedCrossEntropy", {}, class_numbers, probabilities),
    ("CategoricalGeneralizedCrossEntropy", {"q": 0.8}, class_numbers, probabilities),
]
NAMES = [f"{case[0]}-{number}" for number, case in enumerate(CASES)]
SHAPES = [(6, CLASSES), (3, 5, CLASSES)]
REDUCTIONS = ["sum_over_batch_size", "sum", "mean", "mean_with_sample_weight", None]
every_case = pytest.mark.parametrize("case", CASES, ids=NAMES)


def drawn(case, shape, seed=0):
    rng = np.random.default_rng(seed)
    return case[2](rng, shape), case[3](rng, shape)
