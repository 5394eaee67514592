"""Random labels and predictions of every kind, for losses and metrics."""

import numpy as np

CLASSES = 4


def probabilities(rng, shape):
    raw = rng.uniform(0.05, 1.0, shape)
    return (raw / raw.sum(-1, keepdims=True)).astype("float32")


def reals(rng, shape):
    return rng.normal(size=shape).astype("float32")


def positives(rng, shape):
    return rng.uniform(0.1, 3.0, shape).astype("float32")


def bits(rng, shape):
    return rng.integers(0, 2, shape).astype("float32")


def bit_probabilities(rng, shape):
    return rng.uniform(0.02, 0.98, shape).astype("float32")


def signs(rng, shape):
    return (rng.integers(0, 2, shape) * 2 - 1).astype("float32")


def one_hot(rng, shape):
    return np.eye(shape[-1], dtype="float32")[class_numbers(rng, shape)]


def class_numbers(rng, shape):
    return rng.integers(0, shape[-1], shape[:-1]).astype("int32")
