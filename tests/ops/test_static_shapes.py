"""Static shapes of calls on Keras tensors with unknown axes, against Keras 3.15."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ganglion

# K: a Keras tensor, I: an Input, o: the ops, L: the layers, N: an unknown size.
CALLS = """\
K(N, N, 3)[:, :100]
K(N, N, 3)[:, 2:100]
K(N, N, 3)[:, -3:]
K(N, N, 3)[:, :-3]
K(N, N, 3)[:, ::2]
K(N, N, 3)[:, 1::2]
K(N, N, 3)[:, ::-1]
K(N, N, 3)[:, 10::-1]
K(N, N, 3)[:, 3]
K(N, N, 3)[:, -1]
K(N, N, 3)[..., 1:]
K(N, N, 3)[0]
K(N, N, 3)[:, None]
K(N, N, 3)[1:5, 1:5]
K(N, 7, 3)[:, 1:5]
K(N, 7, 3)[:, 1:50]
K(N, 7, 3)[:, -50:]
o.slice(K(N, N, 3), (0, 0, 0), (2, 2, 2))
o.slice(K(N, 7, 3), (0, 1, 0), (2, -1, 2))
o.flip(K(N, N, 3))
o.reshape(K(N, N, 3), (-1, 3))
o.reshape(K(N, N, 3), (2, -1))
o.reshape(K(N, N, 3), (-1, 6))
o.reshape(K(N, 4, 3), (-1, 6))
o.reshape(K(N, 4, 3), (-1, 12))
o.reshape(K(N, 4, 3), (-1, 2, 6))
o.reshape(K(N, 128), (-1, 128, 128))
o.reshape(K(N, 20), (-1, 7))
o.ravel(K(N, 4, 3))
o.ravel(K(N, N))
L.Flatten()(I((N, 3)))
L.Flatten()(I((4, 3)))
L.Reshape((-1, ))(I((N, 3)))
L.Reshape((-1, 3))(I((N, 3)))
L.Reshape((6, -1))(I((4, 3)))
L.Reshape((2, 6))(I((4, 3)))
L.Permute((2, 1))(I((N, 3)))
L.RepeatVector(3)(I((4, )))
o.concatenate([K(N, N, 3), K(N, N, 3)], axis=1)
o.concatenate([K(N, N, 3), K(N, 5, 3)], axis=1)
o.concatenate([K(N, N, 3), K(N, 5, 3)], axis=2)
o.concatenate([K(N, N, 3), K(N, N, 3)], axis=0)
o.stack([K(N, N, 3), K(N, N, 3)], axis=1)
o.add(K(N, N, 3), K(N, 5, 3))
o.add(K(N, 5, 3), K(N, N, 3))
o.add(K(N, 3), K(5, 3))
o.add(K(N, 3), np.ones((5, 3), "float32"))
o.add(K(N, N, 3), K(N, 1, 3))
o.add(K(N, 3), K(2, N))
o.where(K(2, N, 1), K(N, 1), K(N, 3))
o.logical_or(K(N, 1), K(300, N))
o.vstack([K(N, 3), K(N, N)])
o.concatenate([K(N, N, 3), K(2, 4, N)], axis=2)
o.reshape(K(N, 3), (3, 2))
o.reshape(K(N, 20), K(2, dtype='int32'))
o.diag(K(N, 3))
o.diagonal(K(N, 3, 3))
o.inner(K(5, N), K(4, 3))
o.tensordot(K(N, 3, 4), K(3, 4), axes=[[0, 1], [1, 0]])
o.einsum("ijk,jkl->lij", K(N, 3, 4), K(N, 4, 5))
o.segment_sum(K(N, 3), K(N, dtype="int32"))
o.slice(K(3, 3), K(2), (2, 2))
o.slice(K(3, 3), K(2), (-1, 2))
o.slice_update(K(4, N), K(2), K(2, 2))
o.unstack(K(2, N, N), num=3, axis=1)[0]
o.add(K(N, N, 3), K(1, N, 3))
o.add(K(N, N, 3), K(3, ))
o.multiply(K(N, 5, 3), K(N, 1, 1))
o.where(K(N, N, 1, dtype="bool"), K(N, 5, 3), K(N, 5, 3))
o.matmul(K(N, N, 3), K(3, 4))
o.matmul(K(N, N, 3), K(N, 3, 4))
o.matmul(K(N, 3, N), K(N, N, 4))
o.matmul(K(N, 3, N), K(N, 5, 4))
o.einsum("bij,bjk->bik", K(N, N, 3), K(N, 3, 4))
o.dot(K(N, 3), K(3, N))
o.tensordot(K(N, 3), K(3, 4), axes=1)
o.sum(K(N, N, 3), axis=1)
o.sum(K(N, N, 3), axis=(0, 1), keepdims=True)
o.argmax(K(N, N, 3))
o.argmax(K(N, N, 3), axis=1, keepdims=True)
o.argmax(K(2, 3), keepdims=True)
o.split(K(N, 4, 3), 2, axis=1)
o.split(K(N, 4, 3), [1, 3], axis=1)
o.split(K(N, N, 3), [1, 3], axis=1)
o.unstack(K(N, 4, 3), axis=1)
o.tile(K(N, 4), (1, 2))
o.tile(K(N, 4), (2, 1))
o.repeat(K(N, 4), 2, axis=1)
o.repeat(K(N, 4), 2, axis=0)
o.repeat(K(N, 4), 2)
o.pad(K(N, N, 3), ((0, 0), (1, 2), (0, 0)))
o.roll(K(N, N, 3), 1)
o.expand_dims(K(N, N), -1)
o.squeeze(K(N, 1, 3))
o.squeeze(K(N, 1, 3), axis=1)
o.squeeze(K(N, N, 1))
o.transpose(K(N, N, 3))
o.diff(K(N, N, 3), axis=1)
o.cumsum(K(N, N, 3))
o.cumsum(K(N, N, 3), axis=1)
o.take(K(N, N, 3), np.array([0, 1]), axis=1)
o.take(K(10, 4), K(N, 5, dtype="int32"), axis=0)
o.take_along_axis(K(N, 5), K(N, 2, dtype="int32"), axis=1)
o.top_k(K(N, 5), 2)
o.one_hot(K(N, dtype="int32"), 5)
o.map(lambda x: x*2, K(N, 3))
o.linspace(K(2), K(2), 5)
o.linspace(K(N), K(N), 5, axis=-1)
o.meshgrid(K(3), K(4))
o.outer(K(N, 3), K(4))
o.broadcast_to(K(N, 1), (5, 3))
o.mean(K(N, N))
o.norm(K(N, N, 3), axis=-1)
o.var(K(N, N, 3), axis=1, keepdims=True)
o.softmax(K(N, N, 3))
o.conv(K(N, N, N, 3), K(3, 3, 3, 5))
o.conv(K(N, N, 8, 3), K(3, 3, 3, 5), strides=2, padding="same")
o.max_pool(K(N, N, 8, 3), 2)
o.rot90(K(N, 4, 3), axes=(1, 2))
o.full_like(K(N, 3), 1)
o.zeros_like(K(N, 3))
L.Conv1D(2, 3)(I((N, 3)))
L.Conv1D(2, 3, padding="same", strides=2)(I((N, 3)))
L.Conv2D(2, 3)(I((N, N, 3)))
L.MaxPooling2D(2)(I((N, N, 3)))
L.UpSampling2D(2)(I((N, N, 3)))
L.ZeroPadding2D(2)(I((N, N, 3)))
L.Cropping2D(2)(I((N, N, 3)))
L.GlobalAveragePooling2D()(I((N, N, 3)))
L.Conv2DTranspose(2, 3, strides=2)(I((N, N, 3)))
L.Add()([I((N, 3)), I((5, 3))])
L.Add()([I((5, 3)), I((N, 3))])
L.Add()([I((N, 3)), I((N, 3))])
L.Add()([I((N, 3)), I((3, ))])
L.Multiply()([I((5, 1)), I((N, 3))])
L.Average()([I((N, 3)), I((5, 3))])
L.Maximum()([I((N, 3)), I((5, 3))])
L.Subtract()([I((N, 3)), I((5, 3))])
L.Concatenate()([I((N, 3)), I((5, 3))])
L.Concatenate(axis=1)([I((N, 3)), I((5, 3))])
L.Dot(axes=(2, 2))([I((N, 3)), I((5, 3))])
L.Embedding(5, 4)(I((N, )))
L.Dense(4)(I((N, 3)))
L.BatchNormalization()(I((N, 3)))
L.Lambda(lambda x: x[:, :10])(I((N, 3)))
L.Lambda(lambda x: x[:, :10])(I((20, 3)))
L.Resizing(4, 5)(I((N, N, 3)))
L.RandomCrop(4, 5)(I((N, N, 3)))
L.CenterCrop(4, 5)(I((N, N, 3)))
K(N, 4).reshape((-1, 2))
K(N, 1).squeeze(1)
L.Dense(2).compute_output_shape((N, N, 3))
L.Conv2D(2, 3).compute_output_shape((N, 8, N, 3))
L.Flatten().compute_output_shape((N, N, 3))
L.Flatten().compute_output_shape((N, 2, 3))
L.Reshape((-1, 2)).compute_output_shape((N, 4))
L.Concatenate(axis=1).compute_output_shape([(N, 2, 3), (N, N, 3)])
L.Add().compute_output_shape([(N, 2, 3), (N, N, 3)])
""".splitlines()


def shapes(structure: Any) -> Any:
    """Return the shapes of Keras tensors, however they are nested."""
    if hasattr(structure, "shape"):
        return tuple(structure.shape)
    if isinstance(structure, (list, tuple)):
        return tuple(shapes(item) for item in structure)
    return structure


def shapes_of(text: str, module: Any) -> Any:
    def tensor(*shape: Any, dtype: str = "float32") -> Any:
        return module.KerasTensor(shape, dtype)

    names = {
        "K": tensor, "I": module.Input, "o": module.ops, "L": module.layers, "N": None,
        "np": np,
    }  # fmt: skip
    return shapes(eval(text, names))


@pytest.mark.rivals
@pytest.mark.parametrize("text", CALLS)
def test_keras_gives_the_same(keras, text: str) -> None:
    assert shapes_of(text, ganglion) == shapes_of(text, keras)


SLICES = [
    ("K(N, N, 3)[:, :100]", (None, None, 3)),
    ("K(N, N, 3)[:, -3:]", (None, None, 3)),
    ("K(N, 7, 3)[:, 1:50]", (None, 6, 3)),
    ("L.Lambda(lambda x: x[:, :10])(I((N, 3)))", (None, None, 3)),
    ("L.Lambda(lambda x: o.squeeze(x[:, :, :1]))(I((N, 3)))", (None, None)),
    ("L.Lambda(lambda x: o.squeeze(x[:, :1]))(I((N, 3)))", (None, 3)),
    ("L.Add()([I((N, 3)), I((5, 3))])", (None, None, 3)),
    ("o.add(K(N, N, 3), K(N, 5, 3))", (None, 5, 3)),
]


@pytest.mark.parametrize(("text", "shape"), SLICES)
def test_an_unknown_axis_stays_unknown(text: str, shape: Any) -> None:
    assert shapes_of(text, ganglion) == shape


def test_what_depends_on_an_unknown_axis_runs_on_any_size() -> None:
    x, y = ganglion.Input((None, 2)), ganglion.Input((3, 2))
    cut = ganglion.Model(x, x[:, :4] * 2.0)
    added = ganglion.Model([x, y], ganglion.layers.Add()([x, y]))
    for size in (2, 4, 9):
        data = np.ones((5, size, 2), "float32")
        assert cut.predict(data, verbose=0).shape == (5, min(size, 4), 2)
    for size in (1, 3):
        data = np.ones((5, size, 2), "float32"), np.ones((5, 3, 2), "float32")
        np.testing.assert_array_equal(added.predict(list(data), verbose=0), 2.0)


class Positions(ganglion.layers.Layer):
    """A table of 20 positions that is cut to the number of steps."""

    table = np.zeros((1, 20, 8), "float32")

    def call(self, x: Any) -> Any:
        steps = ganglion.ops.shape(x)[1]
        return x + ganglion.ops.convert_to_tensor(self.table)[:, :steps]


class Neighbours(ganglion.layers.Layer):
    """The sum over the neighbours in a graph of 20 nodes: the rows are the nodes."""

    def call(self, x: Any) -> Any:
        return ganglion.ops.matmul(np.eye(20, dtype="float32"), x)


def test_a_layer_cuts_a_table_to_the_steps() -> None:
    x = ganglion.Input((None, 8))
    y = Positions()(x)
    assert y.shape == (None, None, 8)
    model = ganglion.Model(x, ganglion.layers.Dense(2)(y))
    assert model(np.zeros((3, 6, 8))).shape == (3, 6, 2)


def test_a_layer_multiplies_its_own_matrix_with_the_batch() -> None:
    x = ganglion.Input((5,))
    y = Neighbours()(x)
    assert y.shape in ((None, 5), (20, 5))
    model = ganglion.Model(x, ganglion.layers.Dense(2)(y))
    assert model(np.zeros((20, 5))).shape == (20, 2)
    with pytest.raises(ValueError, match="inner sizes differ"):
        model(np.zeros((19, 5)))


@pytest.mark.parametrize(
    ("first", "second"),
    [((4, 3), (2, 3)), ((8, 1), (4, 1)), ((None, 4, 3), (None, 2, 3))],
)
def test_known_sizes_that_never_fit_are_refused(first: Any, second: Any) -> None:
    x, y = ganglion.KerasTensor(first), ganglion.KerasTensor(second)
    for call in (ganglion.ops.add, lambda x, y: ganglion.ops.where(x > 0, x, y)):
        with pytest.raises(ValueError, match="do not fit together"):
            call(x, y)


def test_a_keras_tensor_is_no_sequence_and_no_number() -> None:
    for tensor in (ganglion.Input((2,)), ganglion.KerasTensor((2, 3))):
        with pytest.raises(NotImplementedError, match=r"ops\.unstack"):
            next(itertools.islice(iter(tensor), 10))
        with pytest.raises(NotImplementedError, match=r"ops\.unstack"):
            _first, _second = tensor
        with pytest.raises(TypeError, match=r"x\.shape"):
            len(tensor)
    with pytest.raises(ValueError, match="cannot be turned into an int"):
        int(ganglion.KerasTensor(()))
    with pytest.raises(ValueError, match="cannot be turned into a float"):
        float(ganglion.KerasTensor(()))


@pytest.mark.parametrize("kind", ["sparse", "ragged"])
def test_a_sparse_tensor_says_so_and_is_refused_where_it_is_used(kind: str) -> None:
    tensor = ganglion.KerasTensor((2, 3), **{kind: True})
    assert getattr(tensor, kind)
    for use in (ganglion.ops.exp, ganglion.layers.Dense(2)):
        with pytest.raises(ValueError, match="sparse or ragged, which is not supp"):
            use(tensor)
    with pytest.raises(AttributeError, match=f"`{kind}` attribute .* is immutable"):
        setattr(tensor, kind, False)


def test_the_shape_and_the_type_of_a_tensor_are_fixed() -> None:
    tensor = ganglion.KerasTensor((2, 3))
    for name, value in (("shape", (6,)), ("dtype", "int32")):
        with pytest.raises(AttributeError, match=f"`{name}` attribute .* is immutable"):
            setattr(tensor, name, value)
    with pytest.raises(ValueError, match="`sparse=True` and `ragged=True`"):
        ganglion.KerasTensor((2,), sparse=True, ragged=True)
