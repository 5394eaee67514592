"""What ops refuse, they refuse in words that Keras' users know, and its types."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion

M, X = np.ones((2, 3), "float32"), np.ones((2, 8, 3), "float32")
PAIR = (M, M)


def double(keras: Any) -> Any:
    x = keras.KerasTensor((2, 3))
    return keras.Function(x, x * 2)


# What is called with `keras` or with Ganglion, and the words that both must say.
CASES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda k: k.ops.reshape(M, (-2, 3)), "non-negative integer"),
    (lambda k: k.ops.reshape(M, (-1, -1)), "at most one unknown dimension"),
    (lambda k: k.ops.transpose(k.KerasTensor((2, 3)), (0, 0)), "valid permutation"),
    (lambda k: k.ops.pad(M, 1, "reflect", 0), "Argument `constant_values` can only be"),
    (lambda k: k.ops.where(M > 0, M), "`x1` and `x2` either both should be `None`"),
    (lambda k: k.ops.sum(k.KerasTensor((2, 3)), axis=10), "axis 10 is out of bounds"),
    (lambda k: k.ops.slice(k.KerasTensor((3, 3)), (1, 1), (2, 2, 2)),
     "dimensions in `inputs` must match"),
    (lambda k: k.ops.slice(k.KerasTensor((3, 3)), (1, 1, 1), (2, 2)),
     "dimensions in `start_indices` must match"),
    (lambda k: k.ops.unstack(k.KerasTensor((2, None)), axis=1),
     "Cannot infer argument `num` from shape"),
    (lambda k: k.ops.qr(M, mode="no"), "Expected one of {'reduced', 'complete'}"),
    (lambda k: k.ops.fft((M,)), "Input `x` should be a tuple of two tensors"),
    (lambda k: k.ops.fft2((k.KerasTensor((3,)),) * 2), "Input should have rank >= 2"),
    (lambda k: k.ops.fft((M, M[:1])),
     "Both the real and imaginary parts should have the same shape"),
    (lambda k: k.ops.stft(X[0, :, 0], 4, 1.5, 4),
     "`sequence_stride` must be a positive integer"),
    (lambda k: k.ops.istft(PAIR, 2, 0, 4),
     "`sequence_stride` must be a positive integer"),
    (lambda k: k.ops.stft(X[0, :, 0], 4, 1, 2), "`fft_length` must equal or"),
    (lambda k: k.ops.stft(X[0, :, 0], 4, 1, 4, window="no"), "If a string is passed"),
    (lambda k: k.ops.stft(X[0, :, 0], 4, 1, 4, window=np.ones(3)),
     "The shape of `window` must be equal to"),
    (lambda k: k.ops.segment_sum(M, np.zeros(3, int)), "same leading dimension"),
    (lambda k: k.ops.segment_max(M, np.zeros((1, 2), int)), "should be an 1-D vector"),
    (lambda k: k.ops.view_as_complex(M), "Last dimension of input must be size 2"),
    (lambda k: k.ops.normalize(M, order=2.5), "`order` must be an int >= 1"),
    (lambda k: k.ops.batch_normalization(
        k.KerasTensor((2, 3)), M[0], M[0], -1, offset=k.KerasTensor((2,))),
     "`offset` must be a vector of length"),
    (lambda k: k.ops.conv(k.KerasTensor((2, 10, 3)), k.KerasTensor((3, 5, 4))),
     "input channels must match the kernel"),
    (lambda k: k.ops.depthwise_conv(
        k.KerasTensor((2, 10, 3)), k.KerasTensor((3, 5, 1))),
     "input channels must match the kernel"),
    (lambda k: k.ops.conv_transpose(
        k.KerasTensor((2, 4, 3)), k.KerasTensor((2, 4, 5)), 2),
     "input channels must match the kernel"),
    (lambda k: k.ops.inner(k.KerasTensor((5, 3)), k.KerasTensor((4,))),
     "last dimension"),
    (lambda k: k.ops.transpose(k.KerasTensor((2, 3)), (0,)),
     "must be a list of the same length as the input shape"),
    (lambda k: k.KerasTensor((2, 3))[..., 1, ...], r"Ellipsis|`\.\.\.`"),
    (lambda k: k.ops.transpose(k.KerasTensor((2, 3)), (0, 5)),
     "Each axis in `axes` must be an integer in"),
    (lambda k: k.ops.histogram(M[0], range=(5, 1)), "must be greater than the first"),
    (lambda k: k.ops.histogram(X), "Input tensor must be 1-dimensional"),
    (lambda k: k.ops.histogram(M[0], bins=-5), "should be a non-negative integer"),
    (lambda k: np.asarray(k.KerasTensor((3,))), "have any actual numerical value"),
    (lambda k: k.backend.result_type("float8_e4m3fn", "int8"),
     "There is no implicit conversions from float8 dtypes"),
    (lambda k: k.Function([], k.KerasTensor((3,))), "argument cannot be empty"),
    (lambda k: k.Function(k.Input((3,)), k.ops.exp(k.Input((2,)))),
     "Output .* is not connected to `inputs`"),
    (lambda k: double(k)(X), "incompatible inputs"),
    (lambda k: double(k)(M[:1]), "incompatible inputs"),
    (lambda k: k.ops.image.extract_patches_3d(X[None, ..., None], (4, 4)),
     "Expected an int or a tuple of length 3"),
    (lambda k: k.layers.Conv1DTranspose(2, 2, strides=2, output_padding=2),
     "`output_padding` must be strictly less than `strides`"),
    (lambda k: k.layers.BatchNormalization(renorm=True, renorm_clipping={"dmax": -1.0}),
     "dmax should be non-negative"),
    (lambda k: k.Variable("ones", name="a/b"), "cannot contain character `/`"),
    (lambda k: k.Variable("ones"), "When creating a Variable from an initializer"),
    (lambda k: setattr(k.Variable(1.0), "constraint", "no"),
     "Invalid value for attribute `constraint`"),
    (lambda k: k.StatelessScope([("no", 1.0)]), "all keys in argument `mapping` must"),
    (lambda k: k.StatelessScope([(k.Variable(M), M[:1])]),
     "all values in argument `mapping` must be tensors with"),
    (lambda k: k.ops.image.pad_images(
        X, top_padding=0, left_padding=0, target_height=-1, target_width=9),
     "target_height must be >= 0"),
    (lambda k: k.ops.fold(np.ones((1, 2, 3, 4)), (4, 4), 2), "3D"),
    (lambda k: k.ops.ctc_decode(X, [8, 8], strategy="no"), "Invalid strategy"),
]  # fmt: skip


TYPE_ERRORS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda k: bool(k.KerasTensor((3,))), "cannot be used as a boolean"),
    (lambda k: bool(k.Variable(M)), "cannot be used as a boolean"),
    (lambda k: int(k.Variable(M)), "Only scalar arrays can be converted"),
    (lambda k: setattr(k.Variable(1.0), "overwrite_with_gradient", "yes"),
     "must be a boolean"),
]  # fmt: skip
CASES += TYPE_ERRORS


@pytest.mark.parametrize(("call", "words"), CASES)
def test_a_refusal_has_the_words_of_keras(call, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call(ganglion)


def test_a_softmax_over_one_element_is_warned_of(recwarn) -> None:
    ganglion.ops.softmax(ganglion.KerasTensor((None, None)))
    ganglion.ops.softmax(M)
    assert not recwarn
    with pytest.warns(UserWarning, match="a softmax over axis -1 .* has size 1"):
        ganglion.ops.softmax(M[:, :1])


@pytest.mark.parametrize(("call", "words"), CASES)
def test_keras_says_the_same(keras: Any, call: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call(keras)
