"""What Ganglion refuses, it refuses in words that Keras' users know, and its types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion

ONES, CLASSES = np.ones((4, 5, 3), "float32"), np.array([[0], [1], [2]])

# What is called with `keras` or with Ganglion, and the words that both must say.
CASES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda k: k.losses.Hinge(reduction="abc"), "Invalid value for argument"),
    (lambda k: k.losses.CategoricalCrossentropy()(CLASSES, np.ones((3, 3))),
     "must have the same shape"),
    (lambda k: k.metrics.FalsePositives(thresholds=[-1, 0.5, 2]),
     r"Threshold values must be in \[0, 1\]. Received: \[-1, 2\]"),
    (lambda k: k.metrics.Precision(class_id=2).update_state([1, 0], [1, 0]),
     "When class_id is provided, y_pred must be a 2D array"),
    (lambda k: k.metrics.RecallAtPrecision(-1),
     r"Argument `precision` must be in the range \[0, 1\]"),
    (lambda k: k.metrics.PrecisionAtRecall(0.4, num_thresholds=-1),
     "Argument `num_thresholds` must be an integer > 0"),
    (lambda k: k.metrics.AUC(num_thresholds=1),
     "Argument `num_thresholds` must be an integer > 1"),
    (lambda k: k.metrics.AUC(curve="no"), 'Invalid AUC curve value: "no"'),
    (lambda k: k.metrics.AUC(summation_method="no"),
     'Invalid AUC summation method value: "no"'),
    (lambda k: k.metrics.FBetaScore(average="no"),
     "Invalid `average` argument value. Expected one of: .*average=no"),
    (lambda k: k.metrics.FBetaScore(beta=1),
     "Invalid `beta` argument value. It should be a Python float."),
    (lambda k: k.metrics.FBetaScore(beta=-1.0), "It should be > 0"),
    (lambda k: k.metrics.F1Score(threshold=1), "threshold=1 of type '<class 'int'>'"),
    (lambda k: k.metrics.F1Score(threshold=1.1), "It should verify 0 < threshold <= 1"),
    (lambda k: k.metrics.F1Score().update_state(ONES, ONES),
     r"Score expects 2D inputs with shape \(batch_size, output_dim\)"),
    (lambda k: k.metrics.R2Score(class_aggregation="no"),
     "Invalid value for argument `class_aggregation`"),
    (lambda k: k.metrics.R2Score(num_regressors=-1),
     "Invalid value for argument `num_regressors`"),
    (lambda k: k.metrics.R2Score().update_state([0.0, 1.0], [0.0, 1.0]),
     "expects 2D inputs with shape"),
    (lambda k: k.initializers.VarianceScaling(scale=-1.0),
     "Argument `scale` must be positive float"),
    (lambda k: k.initializers.VarianceScaling(mode="no"), "Invalid `mode` argument:"),
    (lambda k: k.initializers.VarianceScaling(distribution="no"),
     "Invalid `distribution` argument:"),
    (lambda k: k.initializers.get(ONES)(shape=(10, 10)), "Expected `shape` to be"),
    (lambda k: k.regularizers.OrthogonalRegularizer(mode="no"),
     'Expected one of {"rows", "columns"}. Received: mode=no'),
    (lambda k: k.regularizers.OrthogonalRegularizer()(ONES),
     r"must have rank 2. Received: inputs.shape=\(4, 5, 3\)"),
    (lambda k: k.regularizers.L2(-1.0), "expected a non-negative float"),
    (lambda k: k.random.SeedGenerator("no"), "Argument `seed` must be an integer"),
    (lambda k: k.random.SeedGenerator(no=1), "Unrecognized keyword arguments"),
    (lambda k: k.random.uniform((2,), seed="no"),
     "Argument `seed` must be either an integer"),
    (lambda k: k.random.uniform((2,), dtype="int32"),
     "`keras.random.uniform` requires a floating point `dtype`."),
    (lambda k: k.random.randint((2,), 0, 9, dtype="float32"),
     "`keras.random.randint` requires an integer `dtype`."),
    (lambda k: k.layers.ConvLSTM1D(2, 3, strides=2, dilation_rate=2),
     "Specifying `strides > 1` is not compatible with `dilation_rate > 1`"),
    (lambda k: k.layers.TimeDistributed(k.layers.Dense(2))(
        ONES, mask=np.ones((4, 6), bool)),
     "The `mask` passed to the `TimeDistributed` layer has a shape"),
    (lambda k: k.layers.CategoryEncoding(0), "`num_tokens` must be >= 1"),
    (lambda k: k.layers.CategoryEncoding(3)(CLASSES, count_weights=CLASSES),
     "`count_weights` is not used when `output_mode`"),
    (lambda k: k.layers.Discretization(num_bins=3, bin_boundaries=[1.0]),
     "Both `num_bins` and `bin_boundaries`"),
    (lambda k: k.layers.Hashing(0), "cannot be `None` or non-positive"),
    (lambda k: k.layers.Hashing(3, output_mode="no"), "for argument `output_mode`"),
    (lambda k: k.layers.HashedCrossing(3)(CLASSES), "should be called on a list"),
    (lambda k: k.layers.StringLookup(max_tokens=1), "must be greater than 1"),
    (lambda k: k.layers.StringLookup(vocabulary=["a", "a"]), "one repeated term"),
    (lambda k: k.layers.StringLookup(no=1), "Unrecognized keyword argument"),
    (lambda k: k.layers.TextVectorization(output_mode="count",
                                          output_sequence_length=3),
     "must not be set if `output_mode` is not"),
    (lambda k: k.layers.Normalization(mean=0.5),
     "both `mean` and `variance` must be set"),
    (lambda k: k.layers.Normalization(axis=3).build((2, 2)),
     "All `axis` values must be in the range"),
    (lambda k: k.layers.Normalization().adapt([]), "empty iterable"),
    (lambda k: k.layers.RandomBrightness(1.1),
     "The `factor` argument should be a number"),
    (lambda k: k.layers.RandomBrightness(0.5, value_range=[10]),
     "The `value_range` argument should be a list of two numbers"),
    (lambda k: k.layers.RandomBrightness(0.5)(np.ones((4, 4))),
     "Expected the input image to be rank 3 or 4"),
    (lambda k: k.layers.MelSpectrogram(fft_length=256, sequence_length=512),
     "`fft_length` must be greater than or equal to"),
    (lambda k: k.utils.FeatureSpace({}), "cannot be None or empty"),
    (lambda k: k.tree.pack_sequence_as([1, 2], [1]), "holds|Too few leaves"),
    (lambda k: k.tree.assert_same_structure((), [1]), "[Ee]xpected.*tuple"),
]  # fmt: skip


@pytest.mark.rivals
def test_the_same_words_as_keras(keras):
    for call, words in CASES:
        for library in (keras, ganglion):
            with pytest.raises(ValueError, match=words):
                call(library)
