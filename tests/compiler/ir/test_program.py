"""What equal programs share, whatever their states are called."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion.compiler.cpu import backend
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program, Value
from ganglion.compiler.ir.host import host_op


def structure(
    new: Any,
    names: tuple[str, str] = ("v", "w"),
    shape: Any = (2, 3),
    dtype: Any = "f4",
) -> Any:
    """Return the structure of a step that makes the first of two states anew."""
    return program(new, names, shape, dtype).structure


def program(
    new: Any,
    names: tuple[str, str] = ("v", "w"),
    shape: Any = (2, 3),
    dtype: Any = "f4",
) -> Program:
    """Return such a step."""
    v, w = (Input(name, shape, dtype) for name in names)
    graph = Graph.of("step", [v, w], {names[0]: new(v, w)})
    return Program(graph, (), names, ())


def times(number: Any) -> Any:
    def new(v: Value, w: Value) -> Value:
        constant = Constant(number, v.dtype)
        return p.multiply(v, shaping.broadcast(constant, shape=v.shape))

    return new


def test_names_of_states_do_not_matter() -> None:
    assert structure(p.add) == structure(p.add, ("dense_7/kernel", "adam/momentum"))


@pytest.mark.parametrize(
    ("new", "others"),
    [
        (p.subtract, {}),
        (lambda v, w: p.add(w, v), {}),
        (lambda v, w: p.add(v, v), {}),
        (p.add, {"shape": (3, 2)}),
        (p.add, {"dtype": "f8"}),
    ],
)
def test_everything_else_does(new: Any, others: dict[str, Any]) -> None:
    assert structure(new, **others) != structure(p.add)


def test_constants_count_with_every_bit() -> None:
    assert structure(times(2.0)) == structure(times(2.0))
    assert structure(times(2.0)) != structure(times(3.0))
    assert structure(times(0.0)) != structure(times(-0.0))


def test_functions_of_the_host_are_never_taken_for_equal() -> None:
    negative = host_op("negative", lambda x: (x.shape, x.dtype), np.negative)
    assert structure(lambda v, w: negative(v)) is None


def fitted(seed: int, width: int = 5) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [
        keras.Input((3,)),
        keras.layers.Dense(width, "tanh"),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential(layers)
    model.compile("adam", "mse")
    x = np.random.default_rng(0).normal(size=(20, 3)).astype("float32")
    model.fit(x, x[:, :1], batch_size=8, epochs=2, verbose=0)
    return model


def test_the_same_model_made_again_is_not_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("llvmlite")
    keras.config.set_backend("cpu")
    backend.LOADED.clear()
    alone = [fitted(1).get_weights()]
    backend.LOADED.clear()
    alone.append(fitted(2).get_weights())
    built = []
    build = backend.build
    monkeypatch.setattr(
        backend, "build", lambda program: built.append(1) or build(program)
    )
    beside = [fitted(seed) for seed in (1, 2)]
    assert not built
    fitted(1, width=6)
    assert len(built) == 2  # of 8 rows, and of the last 4
    for weights, model in zip(alone, beside, strict=True):
        for ours, theirs in zip(model.get_weights(), weights, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_program_unlike_all_others_is_planned_without_its_structure() -> None:
    pytest.importorskip("llvmlite")
    backend.LOADED.clear()
    wide, long = program(p.add), program(p.add, shape=(6,))
    other, again = program(p.multiply, shape=(6,)), program(p.add, shape=(6,))
    plans = [backend.compile(each).plan for each in (wide, long)]
    assert not any("structure" in vars(each) for each in (wide, long))
    plans += [backend.compile(each).plan for each in (other, again)]
    assert len({*map(id, plans)}) == 3
    assert plans[3] is plans[1]
