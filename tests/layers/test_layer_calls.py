"""What a layer may be called on, what its `build` sees, and how `training` is found.

Each expectation was read off Keras 3.15 running the same lines.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers
from ganglion.layers import InputSpec

A, B = np.ones((2, 3), "float32"), np.full((2, 4), 2.0, "float32")


class Remembers(layers.Layer):
    def build(self, input_shape: Any) -> None:
        self.shape_seen = input_shape

    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("inputs", "seen"),
    [
        (A, (2, 3)),
        ((A, B), ((2, 3), (2, 4))),
        ([A, B], [(2, 3), (2, 4)]),
        ({"a": A, "b": B}, {"a": (2, 3), "b": (2, 4)}),
    ],
    ids=["array", "tuple", "list", "dict"],
)
def test_build_gets_the_shapes_as_they_are_nested(inputs: Any, seen: Any) -> None:
    layer = Remembers()
    layer(inputs)
    assert layer.shape_seen == seen
    assert layer.get_build_config() == {"input_shape": seen}


def test_a_step_to_compile_has_any_number_of_rows() -> None:
    layer = Remembers()
    model = ganglion.Sequential([layer, layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(A, A[:, :1], verbose=0)
    assert layer.shape_seen == (None, 3)


@pytest.mark.parametrize("number", [3.0, True, [1.0, 2.0], [[1, 2]], "text"])
def test_numbers_of_python_are_no_tensors(number: Any) -> None:
    with pytest.raises(ValueError, match=r"wrap it in `np\.array"):
        Remembers()(number)


def test_numbers_of_numpy_and_tensors_of_others_are() -> None:
    class Foreign:
        shape = (2, 3)

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return A.astype(dtype or A.dtype)

    class Twice(layers.Layer):
        def call(self, x: Any) -> Any:
            return x * 2

    assert Twice()(np.float32(2)) == 4
    np.testing.assert_array_equal(Twice()(Foreign()), A * 2)


class Inner(layers.Layer):
    def call(self, x: Any, training: Any = None) -> Any:
        self.seen = training
        return x


class Outer(layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Active(Outer):
    def call(self, x: Any, training: Any = True) -> Any:
        self.seen = training
        return self.inner(x)


def test_training_is_given_inherited_or_the_default() -> None:
    layer = Outer()
    for training in (None, True, False):
        layer(A, training=training)
        assert layer.inner.seen is training
    active = Active()
    active(A)
    assert (active.seen, active.inner.seen) == (True, True)
    active(A, training=False)
    assert (active.seen, active.inner.seen) == (False, False)
    active(A, False)  # by position, as in Keras 2
    assert (active.seen, active.inner.seen) == (False, False)


def test_an_optional_input_may_be_none() -> None:
    class Sum(layers.Layer):
        def call(self, x: Any, y: Any = None) -> Any:
            return x if y is None else x + y

    x = ganglion.Input((3,), name="x")
    y = ganglion.Input((3,), name="y", optional=True)
    outputs = Sum()(x, y)
    by_list = ganglion.Model([x, y], outputs)
    np.testing.assert_array_equal(by_list([A, A]), 2 * A)
    np.testing.assert_array_equal(by_list([A, None]), A)
    by_name = ganglion.Model({"x": x, "y": y}, outputs)
    np.testing.assert_array_equal(by_name({"x": A, "y": None}), A)
    np.testing.assert_array_equal(by_list.predict([A, A], verbose=0), 2 * A)
    assert by_list.get_config()["layers"][1]["config"]["optional"]
    with pytest.raises((ValueError, AttributeError)):
        by_list([None, A])


SPECS = [
    (InputSpec(ndim=2), A, None),
    (InputSpec(ndim=3), A, "expected ndim=3, found ndim=2"),
    (InputSpec(min_ndim=3), A, "expected min_ndim=3, found ndim=2"),
    (InputSpec(max_ndim=1), A, "expected max_ndim=1, found ndim=2"),
    (InputSpec(shape=(None, 4)), A, r"expected shape=\(None, 4\)"),
    (InputSpec(axes={-1: 5}), A, "expected axis -1 .* to have value 5"),
    (InputSpec(axes={-1: None}), A, None),
    (InputSpec(dtype="int32"), A, "int32 is expected"),
    ([InputSpec(ndim=2), InputSpec(ndim=2)], [A, B], None),
    ([InputSpec(ndim=2)], [A, B], "takes 1 input"),
    ({"a": InputSpec(ndim=2)}, {"a": A}, None),
    ({"a": InputSpec(ndim=3)}, {"a": A}, "expected ndim=3"),
    ([InputSpec(ndim=2, optional=True), InputSpec(ndim=2)], [None, A], None),
    ([InputSpec(ndim=2), None], [A, A], None),
    (
        [InputSpec(shape=(2, 4), name="b"), InputSpec(shape=(2, 3), name="a")],
        {"a": A, "b": B},
        None,
    ),
    ([InputSpec(ndim=2, name="c")], {"a": A}, "no data for the input"),
    (
        InputSpec(shape=(None, 3), allow_last_axis_squeeze=True),
        np.ones((2, 3, 1), "float32"),
        None,
    ),
]


@pytest.mark.parametrize(("spec", "inputs", "refusal"), SPECS)
def test_input_specs(spec: Any, inputs: Any, refusal: str | None) -> None:
    class Checked(layers.Layer):
        def call(self, x: Any) -> Any:
            return x

    layer = Checked()
    layer.input_spec = spec
    if refusal is None:
        layer(inputs)
        return
    with pytest.raises(ValueError, match=refusal):
        layer(inputs)


def test_an_input_spec_as_text_and_as_plain_data() -> None:
    assert repr(InputSpec(shape=(None, 3))) == "InputSpec(shape=(None, 3), ndim=2)"
    spec = InputSpec(dtype="float32", min_ndim=2, axes={"1": 3})
    assert repr(spec) == "InputSpec(dtype=float32, min_ndim=2, axes={1: 3})"
    assert repr(InputSpec.from_config(spec.get_config())) == repr(spec)
    with pytest.raises(TypeError, match="numbers of their axes"):
        InputSpec(axes={"rows": 3})


def test_mistakes_are_told_at_once() -> None:
    class Forgetful(layers.Layer):
        def __init__(self) -> None:
            self.size = 3

        def call(self, x: Any) -> Any:
            return x

    with pytest.raises(RuntimeError, match=r"super\(\)\.__init__"):
        Forgetful()(A)
    for kind in (TypeError, ValueError):
        with pytest.raises(kind, match="Unrecognized keyword arguments"):
            layers.Dense(1, speed=3)


def test_symbolic_call_remembers_the_call() -> None:
    layer = layers.Dense(2)
    x = ganglion.Input((3,))
    outputs = layer.symbolic_call(x)
    assert ganglion.Model(x, outputs).output_shape == (None, 2)
