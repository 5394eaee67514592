"""A few steps of an optimizer over two variables: at once, and as a traced step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Input, evaluate
from ganglion.variables import Scope, Variable

STEPS = 12  # two means are written over the weights, three sums of gradients applied
SHAPES = ((3, 4), (4,))


def starts() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=shape) for shape in SHAPES]


def gradients() -> list[list[np.ndarray]]:
    """Draw gradients of very different sizes, some of them exactly zero."""
    rng = np.random.default_rng(2)
    result = []
    for _ in range(STEPS):
        step = [rng.normal(size=shape) * rng.uniform(0.01, 3) for shape in SHAPES]
        step[1][0] = 0.0
        result.append(step)
    return result


def new_variables(dtype: str = "float32") -> list[Variable]:
    return [
        Variable(value, dtype=dtype, name=name)
        for value, name in zip(starts(), ("kernel", "bias"), strict=True)
    ]


def run_eagerly(optimizer: Any, dtype: str = "float32") -> list[np.ndarray]:
    """Apply all gradients; return the variables, then the optimizer's."""
    variables = new_variables(dtype)
    for step in gradients():
        optimizer.apply([item.astype(dtype) for item in step], variables)
    return [item.numpy() for item in (*variables, *optimizer.variables)]


class TracedStep:
    """One step graph, traced once and evaluated again and again."""

    def __init__(self, optimizer: Any, variables: list[Variable]) -> None:
        self.inputs = [
            Input(f"gradient_{i}", item.shape, item.dtype)
            for i, item in enumerate(variables)
        ]
        with Scope(training=True) as self.scope:
            optimizer.apply(self.inputs, variables)

    def __call__(self, grads: list[np.ndarray]) -> None:
        known: dict[Any, np.ndarray] = {
            value: item.numpy() for item, value in self.scope.reads.items()
        }
        for value, gradient in zip(self.inputs, grads, strict=True):
            known[value] = gradient.astype(value.dtype)
        results = evaluate(list(self.scope.writes.values()), known)
        for variable, result in zip(self.scope.writes, results, strict=True):
            variable.assign(result)


def run_traced(optimizer: Any, dtype: str = "float32") -> list[np.ndarray]:
    """Trace one step and evaluate it for all gradients."""
    variables = new_variables(dtype)
    step = TracedStep(optimizer, variables)
    for gradient in gradients():
        step(gradient)
    return [item.numpy() for item in (*variables, *optimizer.variables)]


NAMES = [
    *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax"),
    *("Nadam", "Lion", "Ftrl", "Lamb", "Adafactor"),
]
BOTH: list[Callable[..., list[np.ndarray]]] = [run_eagerly, run_traced]


def one_weight(value: float = 1.0) -> Variable:
    return Variable(np.array([value]), name="w")


def moved(optimizer: Any, *grads: float, start: float = 1.0) -> float:
    """Return where one weight is after these gradients."""
    w = one_weight(start)
    for gradient in grads:
        optimizer.apply([np.array([gradient])], [w])
    return float(w.numpy()[0])
