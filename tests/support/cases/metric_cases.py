"""Every metric with its arguments and the labels and predictions it takes."""

import numpy as np
import pytest
from label_draws import (
    CLASSES,
    bits,
    class_numbers,
    one_hot,
    positives,
    probabilities,
    reals,
    signs,
)

from ganglion import metrics
from ganglion.metrics.confusion import ConfusionMetric


def bit_probabilities(rng, shape):
    """Some predictions lie exactly on a threshold, and on 0 and 1."""
    drawn = rng.uniform(size=shape)
    rounded = np.round(drawn * 4) / 4
    return np.where(rng.uniform(size=shape) < 0.3, rounded, drawn).astype("float32")


def whole_numbers(rng, shape):
    return rng.integers(0, 3, shape).astype("float32")


def pixels(rng, shape):
    return rng.integers(0, CLASSES, shape).astype("int32")


def bit_pixels(rng, shape):
    return rng.integers(0, 2, shape).astype("int32")


ANY = [(6, CLASSES), (3, 5, CLASSES)]
FLAT = [(6, CLASSES)]

# (class, arguments, labels, predictions, shapes)
CASES = [
    ("Accuracy", {}, whole_numbers, whole_numbers, ANY),
    ("BinaryAccuracy", {}, bits, bit_probabilities, ANY),
    ("BinaryAccuracy", {"threshold": 0.25}, bits, bit_probabilities, ANY),
    ("CategoricalAccuracy", {}, one_hot, probabilities, ANY),
    ("SparseCategoricalAccuracy", {}, class_numbers, probabilities, ANY),
    ("TopKCategoricalAccuracy", {"k": 2}, one_hot, probabilities, ANY),
    ("SparseTopKCategoricalAccuracy", {"k": 2}, class_numbers, probabilities, ANY),
    (
        "SparseTopKCategoricalAccuracy",
        {"k": 2, "from_sorted_ids": True},
        class_numbers,
        whole_numbers,
        ANY,
    ),
    ("MeanSquaredError", {}, reals, reals, ANY),
    ("RootMeanSquaredError", {}, reals, reals, ANY),
    ("MeanAbsoluteError", {}, reals, reals, ANY),
    ("MeanAbsolutePercentageError", {}, positives, reals, ANY),
    ("MeanSquaredLogarithmicError", {}, positives, positives, ANY),
    ("CosineSimilarity", {}, reals, reals, ANY),
    ("LogCoshError", {}, reals, reals, ANY),
    ("Hinge", {}, bits, reals, ANY),
    ("SquaredHinge", {}, signs, reals, ANY),
    ("CategoricalHinge", {}, one_hot, reals, ANY),
    ("KLDivergence", {}, probabilities, probabilities, ANY),
    ("Poisson", {}, positives, positives, ANY),
    ("BinaryCrossentropy", {"label_smoothing": 0.1}, bits, bit_probabilities, ANY),
    ("BinaryCrossentropy", {"from_logits": True}, bits, reals, ANY),
    ("CategoricalCrossentropy", {}, one_hot, probabilities, ANY),
    (
        "CategoricalCrossentropy",
        {"from_logits": True, "label_smoothing": 0.1},
        one_hot,
        reals,
        ANY,
    ),
    ("SparseCategoricalCrossentropy", {}, class_numbers, probabilities, ANY),
    (
        "SparseCategoricalCrossentropy",
        {"from_logits": True, "ignore_class": 1},
        class_numbers,
        reals,
        FLAT,
    ),
    ("TruePositives", {}, bits, bit_probabilities, ANY),
    ("TrueNegatives", {"thresholds": [0.25, 0.6]}, bits, bit_probabilities, ANY),
    ("FalsePositives", {"thresholds": 0.25}, bits, bit_probabilities, ANY),
    ("FalseNegatives", {"thresholds": [0.0, 0.5, 1.0]}, bits, bit_probabilities, ANY),
    ("Precision", {}, bits, bit_probabilities, ANY),
    ("Precision", {"thresholds": [0.1, 0.25, 0.9]}, bits, bit_probabilities, ANY),
    ("Precision", {"top_k": 2}, one_hot, probabilities, FLAT),
    ("Precision", {"class_id": 1}, one_hot, probabilities, FLAT),
    ("Precision", {"top_k": 2, "class_id": 3}, one_hot, probabilities, FLAT),
    ("Recall", {}, bits, bit_probabilities, ANY),
    ("Recall", {"top_k": 2, "thresholds": 0.25}, one_hot, bit_probabilities, FLAT),
    ("Recall", {"class_id": 2, "thresholds": [0.3]}, one_hot, probabilities, FLAT),
    ("AUC", {}, bits, bit_probabilities, ANY),
    ("AUC", {"num_thresholds": 5}, bits, bit_probabilities, ANY),
    ("AUC", {"curve": "PR"}, bits, bit_probabilities, ANY),
    (
        "AUC",
        {"curve": "PR", "summation_method": "minoring"},
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("AUC", {"summation_method": "majoring"}, bits, bit_probabilities, FLAT),
    ("AUC", {"curve": "PRGAIN"}, bits, bit_probabilities, FLAT),
    ("AUC", {"thresholds": [0.25, 0.3, 0.9]}, bits, bit_probabilities, FLAT),
    ("AUC", {"from_logits": True}, bits, reals, FLAT),
    ("AUC", {"multi_label": True}, bits, bit_probabilities, FLAT),
    (
        "AUC",
        {
            "multi_label": True,
            "num_labels": CLASSES,
            "label_weights": [1.0, 0.0, 2.0, 0.5],
            "curve": "PR",
        },
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("AUC", {"label_weights": [1.0, 0.0, 2.0, 0.5]}, bits, bit_probabilities, FLAT),
    ("SensitivityAtSpecificity", {"specificity": 0.5}, bits, bit_probabilities, FLAT),
    ("SpecificityAtSensitivity", {"sensitivity": 0.4}, bits, bit_probabilities, FLAT),
    ("PrecisionAtRecall", {"recall": 0.6}, bits, bit_probabilities, FLAT),
    (
        "RecallAtPrecision",
        {"precision": 0.6, "num_thresholds": 7},
        bits,
        bit_probabilities,
        FLAT,
    ),
    ("F1Score", {}, one_hot, probabilities, FLAT),
    ("F1Score", {"average": "macro", "threshold": 0.5}, bits, bit_probabilities, FLAT),
    ("FBetaScore", {"average": "micro", "beta": 2.0}, one_hot, probabilities, FLAT),
    ("FBetaScore", {"average": "weighted", "beta": 0.5}, one_hot, probabilities, FLAT),
    ("PearsonCorrelation", {}, reals, reals, ANY),
    ("ConcordanceCorrelation", {}, reals, reals, ANY),
    ("R2Score", {}, reals, reals, FLAT),
    ("R2Score", {"class_aggregation": None, "num_regressors": 2}, reals, reals, FLAT),
    (
        "R2Score",
        {"class_aggregation": "variance_weighted_average"},
        reals,
        reals,
        FLAT,
    ),
    ("MeanIoU", {"num_classes": CLASSES}, pixels, pixels, [(3, 5)]),
    ("MeanIoU", {"num_classes": CLASSES, "ignore_class": 2}, pixels, pixels, [(3, 5)]),
    (
        "IoU",
        {"num_classes": 6, "target_class_ids": [0, 2, 5]},
        pixels,
        pixels,
        [(3, 5)],
    ),
    ("BinaryIoU", {"threshold": 0.25}, bit_pixels, bit_probabilities, [(3, 5)]),
    (
        "OneHotIoU",
        {"num_classes": CLASSES, "target_class_ids": [1, 2]},
        one_hot,
        probabilities,
        ANY,
    ),
    ("OneHotMeanIoU", {"num_classes": CLASSES}, one_hot, probabilities, ANY),
]
NAMES = [f"{case[0]}-{number}" for number, case in enumerate(CASES)]
every_case = pytest.mark.parametrize("case", CASES, ids=NAMES)
weighted = pytest.mark.parametrize("weighted", [False, True])


def batches(case, shape, weighted, count=3):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        y_true, y_pred = case[2](rng, shape), case[3](rng, shape)
        if not weighted:
            yield y_true, y_pred
        elif "IoU" in case[0]:  # counts are integers: so are their weights
            yield y_true, y_pred, rng.integers(0, 4, y_true.shape[: len(shape) - 1])
        else:
            # Keras' counts need a weight for every step; its means do not.
            is_count = isinstance(metric_of(case), ConfusionMetric)
            size = shape[:-1] if is_count else shape[:1]
            yield y_true, y_pred, rng.uniform(size=size).astype("float32")


def usable(case, weighted):
    # One weight per pixel has a test of its own.
    return not weighted or "IoU" not in case[0] or "OneHot" in case[0]


def metric_of(case):
    return getattr(metrics, case[0])(**case[1])


def updated(metric, *arguments, **options):
    metric.update_state(*arguments, **options)
    return metric.result()
