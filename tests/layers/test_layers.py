"""The contract every layer keeps, checked for all of them in one call each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import CASES, Case
from layer_contract import check_layer

from ganglion import keras2, layers
from ganglion.compiler.ir.graph import ShapeError
from ganglion.serialization import deserialize_keras_object, serialize_keras_object

Shape = tuple[int, ...]


# ---- the contract -----------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_layer_keeps_the_contract(case: Case) -> None:
    check_layer(
        lambda: case.make(layers), *case.shapes, x=case.inputs(), spread=case.spread
    )


def test_every_layer_is_in_the_table() -> None:
    classes = {
        name
        for name in layers.__all__
        if isinstance(getattr(layers, name), type)
        and getattr(layers, name).__name__ == name
    }
    apart = {"Layer", "InputSpec", "InputLayer", "Lambda", "ThresholdedReLU"}
    apart |= {"SpectralNormalization"}  # test_wrapping_rivals.py
    apart |= set(layers.foreign.__all__)  # refused
    random = {cls for cls in classes if cls.startswith("Random")}  # test_augment.py
    text = set(layers.preprocessing.__all__)  # test_text.py, test_spectrograms.py
    random |= set(layers.augmentation.__all__)  # test_augment*.py
    recurrent = set(layers.rnn.__all__)  # test_rnn.py and test_rnn_rivals.py
    compared = {item.layer for item in CASES} | recurrent
    assert classes - compared - (apart | random | text) == set()


def test_old_thresholded_relu_keeps_the_contract() -> None:
    with pytest.warns(keras2.Keras2Warning, match="ThresholdedReLU"):
        layer = layers.ThresholdedReLU(0.5)
    assert layer(np.array([0.4, 0.5, 0.6], "float32")).tolist() == [
        0,
        0,
        np.float32(0.6),
    ]
    check_layer(lambda: layers.ThresholdedReLU(theta=0.5), (3, 5))


# ---- stacks of layers ---------------------------------------------------------------

_small = st.integers(1, 4)
_padding = st.sampled_from(["valid", "same"])


def _next_layer(draw: Any, shape: Shape) -> Any:
    """Draw a layer that fits inputs of this shape (without batch)."""
    fitting = {1: _on_rows, 2: _on_steps, 3: _on_images}
    return draw(st.sampled_from(fitting[len(shape)]))(draw, shape)


def _kernel(draw: Any, shape: Shape) -> list[int]:
    return [draw(st.integers(1, min(n, 4))) for n in shape[:-1]]


def _conv(rank: int) -> Callable[[Any, Shape], Any]:
    def make(draw: Any, shape: Shape) -> Any:
        layer = getattr(layers, f"Conv{rank}D")
        return layer(draw(_small), _kernel(draw, shape), draw(_small), draw(_padding))

    return make


def _transposed(rank: int) -> Callable[[Any, Shape], Any]:
    def make(draw: Any, shape: Shape) -> Any:
        layer = getattr(layers, f"Conv{rank}DTranspose")
        return layer(
            draw(_small), draw(_small), draw(st.integers(1, 3)), draw(_padding)
        )

    return make


def _pool(kind: str, rank: int) -> Callable[[Any, Shape], Any]:
    def make(draw: Any, shape: Shape) -> Any:
        layer = getattr(layers, f"{kind}Pooling{rank}D")
        steps = draw(st.none() | st.integers(1, 3))
        return layer(_kernel(draw, shape), steps, draw(_padding))

    return make


def _reshape(draw: Any, shape: Shape) -> Any:
    size = math.prod(shape)
    first = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))
    return layers.Reshape(draw(st.sampled_from([(first, -1), (-1, first, 1), (-1,)])))


def _plain(make: Callable[[], Any]) -> Callable[[Any, Shape], Any]:
    return lambda draw, shape: make()


_anywhere = [
    _reshape,
    lambda draw, shape: layers.Dense(
        draw(_small), draw(st.sampled_from(["relu", None]))
    ),
    *map(_plain, (layers.Flatten, layers.LayerNormalization, layers.PReLU)),
    *map(_plain, (layers.BatchNormalization, lambda: layers.Dropout(0.5))),
]
_on_rows = [*_anywhere, lambda draw, shape: layers.RepeatVector(draw(_small))]
_on_steps = [
    *_anywhere,
    _conv(1),
    _transposed(1),
    _pool("Max", 1),
    _pool("Average", 1),
    *map(_plain, (layers.UpSampling1D, layers.ZeroPadding1D)),
    *map(_plain, (layers.GlobalMaxPooling1D, lambda: layers.Permute((2, 1)))),
]
_on_images = [
    *_anywhere,
    _conv(2),
    _transposed(2),
    _pool("Max", 2),
    _pool("Average", 2),
    *map(_plain, (layers.UpSampling2D, layers.ZeroPadding2D)),
    *map(_plain, (layers.GlobalAveragePooling2D, lambda: layers.Permute((3, 1, 2)))),
]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_inferred_shapes_of_random_stacks_are_the_real_ones(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    symbol, x = layers.Input(shape), np.ones((2, *shape), "float32")
    for _ in range(data.draw(st.integers(1, 5))):
        if x.ndim > 4 or x.size > 20_000:
            break
        layer = _next_layer(data.draw, x.shape[1:])
        symbol, x = layer(symbol), layer(x)
        assert symbol.shape == (None, *x.shape[1:])
        assert layer.compute_output_shape(symbol.call.inputs[0].shape) == symbol.shape


def test_unknown_sizes_stay_unknown() -> None:
    x = layers.Input((None, None, 3))
    x = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    assert x.shape == (None, None, None, 4)
    x = layers.UpSampling2D(interpolation="bilinear")(x)
    assert layers.MaxPooling2D()(x).shape == (None, None, None, 4)
    assert layers.GlobalAveragePooling2D()(x).shape == (None, 4)
    assert layers.Flatten()(x).shape == (None, None)


def test_windows_may_be_longer_than_stand_ins_for_unknown_sizes() -> None:
    steps = layers.Input((None, 1))
    assert layers.Conv1D(2, 700)(steps).shape == (None, None, 2)
    assert layers.STFTSpectrogram()(steps).shape == (None, None, 129)
    with pytest.raises(ShapeError, match="does not fit into"):
        layers.Conv1D(2, 700)(layers.Input((600, 1)))


# ---- inputs -------------------------------------------------------------------------


def test_input_is_a_keras_tensor_with_its_layer() -> None:
    x = layers.Input((28, 28), batch_size=4, dtype="uint8", name="image")
    assert x.shape == (4, 28, 28)
    assert x.dtype == "uint8"
    assert x.name == "image"
    layer = x.call.operation
    assert isinstance(layer, layers.InputLayer)
    assert layer.output is x is layer.input
    assert layer.built
    assert layers.Input(batch_shape=(None, 3)).shape == (None, 3)
    assert layers.Input(7).shape == (None, 7)


def test_input_layers_are_remade_from_json() -> None:
    layer = layers.InputLayer((3, None), dtype="int32")
    entry = json.loads(json.dumps(serialize_keras_object(layer)))
    again = deserialize_keras_object(entry)
    assert again.get_config() == layer.get_config()
    assert again.output.shape == (None, 3, None)
    with pytest.warns(keras2.Keras2Warning, match="input_shape"):
        assert layers.InputLayer(input_shape=(3,)).batch_shape == (None, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass a `shape` argument"),
        ({"shape": (3,), "batch_shape": (2, 3)}, "cannot pass both `shape`"),
        ({"shape": (3,), "sparse": True}, "sparse"),
        ({"shape": (3,), "ragged": True}, "ragged"),
        ({"shape": (3,), "tensor": 1}, "input_tensor"),
        ({"shape": (3.5,)}, "integers"),
        ({"shape": (-1,)}, "integers"),
        ({"shape": (3,), "dtype": "words"}, "use numbers, or .string. for texts"),
    ],
)
def test_inputs_refuse_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layers.Input(**arguments)


# ---- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.Dense(0), "argument `units`"),
        (lambda: layers.Dense(2.5), "`units`"),
        (lambda: layers.Dense(2, activation="rleu"), "Did you mean"),
        (lambda: layers.Embedding(0, 2), "input_dim"),
        (lambda: layers.Conv2D(8, 3, padding="some"), "'valid', 'same'"),
        (lambda: layers.Conv2D(8, 3, padding="causal"), "'valid', 'same'"),
        (lambda: layers.Conv2D(8, 3, padding=((1, 1), (0, 0))), "ZeroPadding"),
        (lambda: layers.Conv2D(8, (3, 3, 3)), "`kernel_size`"),
        (lambda: layers.Conv2D(8, 0), "`kernel_size`"),
        (lambda: layers.Conv2D(8, 3, strides=0), "`strides`"),
        (
            lambda: layers.Conv2D(8, 3, strides=2, dilation_rate=2),
            "not supported in conjunction",
        ),
        (lambda: layers.Conv2D(8, 3, groups=3), "groups=3"),
        (lambda: layers.Conv2DTranspose(8, 3, 2, output_padding=2), "output_padding"),
        (lambda: layers.MaxPooling2D(padding="full"), "'valid', 'same'"),
        (lambda: layers.MaxPooling2D(0), "`pool_size`"),
        (lambda: layers.Flatten(data_format="rows_first"), "'channels_last'"),
        (lambda: layers.Dropout(1.5), "between 0 and 1"),
        (lambda: layers.Dropout(0.5, noise_shape=(0, 1)), "noise_shape"),
        (lambda: layers.AlphaDropout(1.0), "below 1"),
        (lambda: layers.Reshape((-1, -1)), "at most one"),
        (lambda: layers.Permute((1, 3)), "each of 1 ... 2"),
        (lambda: layers.RepeatVector(0), "`n`"),
        (lambda: layers.UpSampling2D(interpolation="cubic"), "'nearest', 'bilinear'"),
        (lambda: layers.ZeroPadding2D((1, 2, 3)), "`padding`"),
        (lambda: layers.ZeroPadding2D(-1), "`padding`"),
        (lambda: layers.Cropping1D((1, 2, 3)), "`cropping`"),
        (
            lambda: layers.BatchNormalization(renorm=True, renorm_clipping={"max": 1}),
            "rmax, rmin, dmax",
        ),
        (
            lambda: layers.SpectralNormalization(layers.Dense(1), power_iterations=0),
            "power_iterations",
        ),
        (lambda: layers.GroupNormalization(0), "`groups`"),
        (lambda: layers.ReLU(max_value=-1), "max_value"),
        (lambda: layers.LeakyReLU(-0.1), "negative_slope"),
        (lambda: layers.Dot((1, 2, 3)), "`axes`"),
        (lambda: layers.Normalization(mean=1.0), "both `mean` and `variance`"),
        (lambda: layers.Normalization(mean=[[1]], variance=[[1]]), "equal shapes"),
        (lambda: layers.Lambda("relu"), "needs a function"),
        (lambda: layers.Lambda(abs, mask=1), "`mask` of a Lambda"),
    ],
)
def test_constructors_refuse_by_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "shapes", "message"),
    [
        (lambda: layers.Conv2D(4, 3), [(2, 9)], "expected ndim=4, found ndim=2"),
        (lambda: layers.Conv2D(4, 5), [(2, 4, 9, 1)], "does not fit into"),
        (lambda: layers.Conv2D(4, 3, groups=2), [(2, 9, 9, 3)], "2 groups"),
        (lambda: layers.MaxPooling2D(5), [(2, 4, 9, 1)], "does not fit into"),
        (lambda: layers.Dense(3), [(5,)], "expected min_ndim=2"),
        (lambda: layers.Reshape((4,)), [(2, 5)], r"\(5 elements\) into \(4,\)"),
        (lambda: layers.Cropping1D(3), [(2, 6, 1)], "must be smaller than"),
        (lambda: layers.GroupNormalization(3), [(2, 4)], "into 3 groups"),
        (lambda: layers.BatchNormalization(axis=3), [(2, 4)], "axis 3"),
        (lambda: layers.Add(), [(2, 4), (2, 3)], "cannot merge"),
        (lambda: layers.Add(), [(2, 4)], "list of inputs"),
        (lambda: layers.Subtract(), [(2, 4)] * 3, "exactly 2"),
        (lambda: layers.Concatenate(), [(2, 4), (2, 3, 4)], "matching shapes"),
        (lambda: layers.Concatenate(1), [(2, 4, 1), (2, 3, 2)], "matching shapes"),
        (lambda: layers.Dot(1), [(2, 4), (2, 3)], "cannot sum over"),
        (lambda: layers.Dot(0), [(2, 4), (2, 4)], "batch"),
        (lambda: layers.Dot(2), [(2, 4), (2, 4)], "must exist"),
    ],
)
def test_wrong_shapes_are_refused_by_layer(
    make: Callable[[], Any], shapes: list[Shape], message: str
) -> None:
    arrays = [np.ones(shape, "float32") for shape in shapes]
    symbols = [layers.Input(shape[1:]) for shape in shapes]
    for fed in (arrays, symbols):
        layer = make()
        with pytest.raises(ValueError, match=message) as caught:
            layer(fed if len(fed) > 1 else fed[0])
        assert layer.name in str(caught.value)


def test_a_built_layer_refuses_other_channels() -> None:
    layer = layers.Conv2D(4, 3)
    layer(np.ones((1, 5, 5, 3), "float32"))
    with pytest.raises(ShapeError, match="expected axis -1 of input shape to have"):
        layer(np.ones((1, 5, 5, 2), "float32"))


def test_a_wrong_shape_leaves_the_layer_unbuilt() -> None:
    layer = layers.Conv2D(4, 3)
    with pytest.raises(ShapeError, match=r"shape received: \(None, 9\)"):
        layer(layers.Input((9,)))
    assert not layer.built
    assert not layer.weights
    assert layer(layers.Input((9, 9, 1))).shape == (None, 7, 7, 4)


def test_unknown_channels_are_named() -> None:
    with pytest.raises(ValueError, match="axis -1 of the input tensor should have a"):
        layers.Dense(3)(layers.Input((None,)))
