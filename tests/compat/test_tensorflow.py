"""The thin `tensorflow`: functions against TensorFlow itself, and what is refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import keras2, ops
from ganglion.compat import aliases
from ganglion.compat.tensorflow import names, namespaces
from ganglion.compat.tensorflow.object_names import OBJECTS

tf = pytest.importorskip("tensorflow")

X = np.array([[0.3, -1.2, 2.0], [1.5, 0.1, -0.7]], np.float32)
Y = np.array([[1.0, 2.0, -0.5], [0.25, 4.0, 1.0]], np.float32)
N = np.array([[1, 2, 0], [2, 1, 1]], np.int32)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.linspace(0, 1, 5 * 4 * 3, dtype=np.float32).reshape(5, 4, 3)
PIXELS = (IMAGE * 255).astype(np.uint8)
BATCH = np.stack([IMAGE, IMAGE[::-1]])
ROW = np.arange(4, dtype=np.float32).reshape(1, 1, 4, 1)
FILTERS = np.linspace(-1, 1, 2 * 2 * 3 * 2, dtype=np.float32).reshape(2, 2, 3, 2)
TEXTS = np.array([[b"A <br /> b"], [b"C!d"]], object)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("add", (X, Y), {"name": "sum"}),
    ("add_n", ([X, Y, X],), {}),
    ("argmax", (X,), {}),
    ("argmax", (X,), {"axis": 1, "output_type": "int32"}),
    ("argmin", (X, -1), {}),
    ("argsort", (X,), {"direction": "DESCENDING"}),
    ("argsort", (X[0],), {"stable": True}),
    ("nn.silu", (X, 2.0), {}),
    ("nn.swish", (X,), {}),
    (
        "nn.conv2d",
        (
            BATCH,
            np.ones((2, 2, BATCH.shape[-1], 1), "float32"),
            1,
            [[0, 0], [1, 0], [0, 2], [0, 0]],
        ),
        {},
    ),
    ("boolean_mask", (X, X[:, 0] > 1), {}),
    ("boolean_mask", (X, X[0] > 0), {"axis": 1}),
    ("boolean_mask", (BATCH, BATCH[..., 0] > 0.5), {}),
    ("broadcast_to", (X[0], (2, 3)), {}),
    ("reduce_mean", ([1, 2, -8, 1],), {}),
    ("reduce_mean", (N, 1), {"keepdims": True}),
    ("nn.batch_normalization", (X, Y[:1], abs(Y[:1]), None, X[0], 1e-3), {}),
    ("nn.batch_normalization", (X, Y[:, :1], abs(Y[:, :1]), X[0], None, 1e-3), {}),
    ("dynamic_partition", (X, [1, 0], 2), {}),
    ("linalg.expm", (X[:, :2] * 3,), {}),
    ("strings.format", ("{} and {}", (1, np.float32(2.5))), {}),
    ("strings.unicode_decode", ("caf\u00e9", "UTF-8"), {}),
    ("strings.unicode_encode", ([[99, 233], [97, 98]], "UTF-8"), {}),
    ("cast", (X, "int32"), {}),
    ("clip_by_norm", (X, 1.0), {}),
    ("clip_by_global_norm", ([X, Y], 1.0), {}),
    ("clip_by_value", (X, -0.5, 0.5), {}),
    ("concat", ([X, Y], 1), {}),
    ("constant", ([1.5, 2.0],), {}),
    ("constant", (3, "float32", (2, 2)), {}),
    ("cumsum", (X,), {"axis": 1, "exclusive": True, "reverse": True}),
    ("math.cumprod", (X,), {"axis": 1, "exclusive": True, "reverse": True}),
    ("einsum", ("ij,kj->ik", X, Y), {}),
    ("expand_dims", (X, 1), {}),
    ("eye", (3,), {}),
    ("fill", ((2, 2), 7.0), {}),
    ("fill", ([3], 7), {}),
    ("gather", (X, [1, 0]), {}),
    ("gather", (X, N), {"batch_dims": 1, "axis": 1}),
    ("gather", (CUBE, [[1], [0]]), {"batch_dims": 1, "axis": 2}),
    ("gather", (CUBE, [[[1], [0], [3]]] * 2), {"batch_dims": 2}),
    ("gather", (CUBE, [[2, 1], [0, 0]]), {"batch_dims": -1, "axis": -2}),
    ("gather_nd", (X, [[0, 1], [1, 2]]), {}),
    ("gather_nd", (CUBE, [[[0, 1]], [[2, 3]]]), {"batch_dims": 1}),
    ("eye", (2, 3), {"batch_shape": [2]}),
    ("math.logical_xor", (X > 0, X > 1), {}),
    ("shape", (X,), {"out_type": "int64"}),
    ("tensor_scatter_nd_max", (X, [[0, 1], [1, 0]], [9.0, -9.0]), {}),
    ("tensor_scatter_nd_min", (X, [[0, 1], [1, 0]], [9.0, -9.0]), {}),
    ("image.adjust_brightness", (PIXELS, 0.1), {}),
    ("image.adjust_contrast", (IMAGE, 2.0), {}),
    ("image.central_crop", (IMAGE, 0.5), {}),
    ("image.convert_image_dtype", (PIXELS, "float32"), {}),
    ("image.convert_image_dtype", (IMAGE, "uint8"), {}),
    ("image.crop_to_bounding_box", (IMAGE, 1, 1, 2, 3), {}),
    ("image.flip_left_right", (BATCH,), {}),
    ("image.flip_up_down", (IMAGE,), {}),
    ("image.grayscale_to_rgb", (tf.constant(IMAGE[..., :1]),), {}),
    ("image.per_image_standardization", (BATCH,), {}),
    ("image.rgb_to_grayscale", (IMAGE,), {}),
    ("image.rot90", (IMAGE,), {}),
    ("linalg.band_part", (X @ X.T, 0, -1), {}),
    ("linalg.matrix_transpose", (X,), {}),
    ("linspace", (0.0, 1.0, 5), {}),
    ("math.ceil", (X,), {}),
    ("math.divide_no_nan", (X, np.zeros_like(X)), {}),
    ("math.l2_normalize", (X, 1), {}),
    ("math.log", (np.abs(X),), {}),
    ("math.multiply_no_nan", (X, np.zeros_like(X)), {}),
    ("math.reduce_std", (X,), {"axis": 0}),
    ("math.reduce_variance", (X, 1, True), {}),
    ("math.top_k", (X,), {"k": 2}),
    ("matmul", (X, Y), {"transpose_b": True}),
    ("nn.avg_pool2d", (BATCH, 2, 2, "SAME"), {}),
    ("nn.conv2d", (BATCH, FILTERS, [1, 2, 1, 1], "SAME"), {}),
    ("nn.embedding_lookup", (X, [1, 1, 0]), {}),
    ("nn.gelu", (X,), {}),
    ("nn.l2_loss", (X,), {}),
    ("nn.leaky_relu", (X,), {}),
    ("nn.max_pool2d", (BATCH, [2, 2], [1, 1], "VALID"), {}),
    ("nn.moments", (X,), {"axes": [0]}),
    ("nn.relu", (X,), {}),
    ("nn.sigmoid_cross_entropy_with_logits", (), {"labels": Y, "logits": 30 * X}),
    ("nn.softmax", (X,), {}),
    ("nn.softmax_cross_entropy_with_logits", (np.abs(Y), X), {}),
    ("nn.sparse_softmax_cross_entropy_with_logits", ([0, 2], X), {}),
    ("norm", (X,), {"axis": 1}),
    ("one_hot", (N, 3), {}),
    ("one_hot", ([0, 2], 3), {"on_value": 5.0, "off_value": -1.0, "axis": 0}),
    ("one_hot", ([0, 2], 3), {"on_value": 5, "off_value": 1}),
    ("one_hot", ([0, 2], 3), {"on_value": True, "off_value": False, "dtype": "bool"}),
    ("ones_like", (N,), {}),
    ("pad", (X, [[1, 0], [0, 2]]), {"mode": "CONSTANT", "constant_values": 4}),
    ("pad", (X, [[0, 0], [1, 1]], "REFLECT"), {}),
    ("pow", (np.abs(X), Y), {}),
    ("range", (5,), {}),
    ("range", (1.0, 2.0, 0.25), {}),
    ("rank", (X,), {}),
    ("reduce_logsumexp", (X, 1), {}),
    ("reduce_max", (X,), {"axis": [0, 1]}),
    ("reduce_mean", (), {"input_tensor": X, "axis": 1, "keepdims": True}),
    ("reduce_sum", (N,), {}),
    ("reshape", (X, (3, -1)), {}),
    ("reverse", (X, [1]), {}),
    ("sequence_mask", ([1, 3],), {}),
    ("shape", (X,), {}),
    ("size", (X,), {}),
    ("slice", (X, [0, 1], [-1, 2]), {}),
    ("split", (X, [1, -1], 1), {}),
    ("split", (X, 3), {"axis": 1}),
    ("math.squared_difference", (X, Y), {}),
    ("squeeze", (X[None],), {}),
    ("stack", ([X, Y],), {"axis": 1}),
    ("strings.join", ([TEXTS, TEXTS], "+"), {}),
    ("strings.length", (TEXTS,), {}),
    ("strings.lower", (TEXTS,), {}),
    ("strings.regex_replace", (TEXTS, "<br />|!", " "), {}),
    ("strings.regex_replace", (["a.b,(c)!"], r"[[:punct:]]", r"<\0>"), {}),
    ("strings.regex_full_match", (["a1", "a-"], r"[[:alnum:]]+"), {}),
    ("strings.substr", (TEXTS, 1, 2), {}),
    ("strings.substr", (["hello", "world"], [-2, 1], [2, 3]), {}),
    ("tensordot", (X, Y), {"axes": [[1], [1]]}),
    ("tile", (X, [2, 1]), {}),
    ("transpose", (X, [1, 0]), {}),
    ("unstack", (X,), {}),
    ("where", (X > 0, X, 0.0), {}),
    ("where", (X > 0,), {}),
    ("zeros", ([2, 2],), {}),
    ("zeros", (tf.constant(3),), {}),
    ("ones", (np.int64(2), "int32"), {}),
    ("reshape", (X, tf.size(X)), {}),
    ("audio.encode_wav", ([[-1.5, 2.0], [-0.5, 0.5 / 32768]], 8000), {}),
    ("image.adjust_hue", (IMAGE, 0.2), {}),
    ("image.adjust_saturation", (IMAGE, 0.5), {}),
    (
        "image.extract_patches",
        (BATCH, [1, 2, 2, 1], [1, 2, 1, 1], [1] * 4, "VALID"),
        {},
    ),
    ("image.hsv_to_rgb", (IMAGE,), {}),
    ("image.pad_to_bounding_box", (IMAGE, 1, 2, 7, 8), {}),
    ("image.psnr", (BATCH, BATCH[::-1], 1.0), {}),
    ("image.resize_with_crop_or_pad", (BATCH, 3, 8), {}),
    ("image.resize_with_pad", (BATCH, 10, 12), {}),
    ("image.resize_with_pad", (np.zeros((1, 6, 7, 1), np.float32) + 1, 8, 8), {}),
    ("image.resize", (PIXELS, (4, 3)), {}),
    ("image.resize", (PIXELS, (9, 9)), {"preserve_aspect_ratio": True}),
    ("image.ssim", (PIXELS, PIXELS[::-1], 255), {"filter_size": 3}),
    ("image.adjust_contrast", (PIXELS.astype(np.int32), 2.0), {}),
    ("image.convert_image_dtype", (PIXELS, "uint16"), {"saturate": True}),
    ("image.convert_image_dtype", (PIXELS * np.uint16(2), "uint8"), {}),
    ("math.count_nonzero", (N, 1), {"keepdims": True}),
    ("image.rgb_to_hsv", (BATCH,), {}),
    ("image.rgb_to_yuv", (BATCH,), {}),
    ("image.yuv_to_rgb", (IMAGE,), {}),
    ("image.ssim", (BATCH, BATCH[::-1], 1.0), {"filter_size": 3}),
    ("image.ssim", (BATCH, BATCH[::-1], 4), {"filter_size": 3, "k1": 0.1, "k2": 0.2}),
    ("image.total_variation", (tf.constant(BATCH),), {}),
    ("linalg.matvec", (X, Y[0]), {}),
    ("linalg.set_diag", (X, Y[:, 0]), {}),
    ("linalg.set_diag", (X.T, Y[:, 0]), {}),
    ("concat", (BATCH, 1), {}),
    ("linalg.diag", (X,), {}),
    ("linalg.diag", ([1.0, 2.0],), {}),
    ("math.bincount", ([[1, 2], [2, 4]],), {}),
    ("math.bincount", ([[1, 2], [2, 4]],), {"axis": -1}),
    ("math.segment_max", (X, [0, 2]), {}),
    ("math.segment_min", (X, [0, 2]), {}),
    ("gather", (X.tolist(), [[0], [1]]), {"axis": 1, "batch_dims": 1}),
    ("image.rgb_to_grayscale", (IMAGE.tolist(),), {}),
    ("nn.depth_to_space", (np.ones((1, 2, 2, 4)).tolist(), 2), {}),
    ("rank", ([[1, 2]],), {}),
    ("slice", ([[1, 2], [3, 4]], [0, 1], [2, -1]), {}),
    ("linalg.diag_part", (BATCH,), {}),
    ("linalg.tensor_diag", (X,), {}),
    ("linalg.tensor_diag_part", (np.ones((2, 3, 2, 3)),), {}),
    ("linalg.trace", (BATCH,), {}),
    ("math.cumprod", (X,), {}),
    ("linalg.svd", (X,), {"compute_uv": False}),
    ("math.confusion_matrix", ([0, 1, 2, 1], [0, 2, 2, 1]), {}),
    ("math.confusion_matrix", ([0, 1], [1, 1], 3), {"weights": [2.0, 3.0]}),
    ("as_string", (N,), {}),
    ("foldr", (lambda a, b: 2 * a - b, X[0]), {}),
    ("linalg.adjoint", (X,), {}),
    ("linalg.cross", (X, Y), {}),
    ("linalg.pinv", (X,), {}),
    ("linalg.triangular_solve", (X[:, :2] + np.eye(2, dtype=np.float32), Y), {}),
    ("math.angle", (X,), {}),
    ("math.cumulative_logsumexp", (X,), {"axis": 1}),
    ("math.digamma", (np.array([-1.3, 0.2, 0.7, 2.0, 30.5], np.float32),), {}),
    ("math.is_non_decreasing", ([1, 1, 3],), {}),
    ("math.is_strictly_increasing", ([1, 1, 3],), {}),
    ("math.lgamma", (np.array([-1.3, 0.2, 0.7, 2.5, 30.5], np.float32),), {}),
    ("math.reciprocal_no_nan", (N.astype(np.float32),), {}),
    ("math.segment_min", (X, [0, 0]), {}),
    ("math.segment_prod", (X, [0, 0]), {}),
    ("math.unsorted_segment_min", (X, [1, 1], 2), {}),
    ("math.unsorted_segment_min", (np.array([5, 3], np.int32), [0, 0], 2), {}),
    ("math.unsorted_segment_min", (np.array([5, 3], np.uint8), [0, 0], 2), {}),
    ("cumsum", (np.array([1, np.inf, 2], np.float32),), {"exclusive": True}),
    ("cumsum", (X,), {"axis": -1, "exclusive": True, "reverse": True}),
    ("math.unsorted_segment_prod", (X, [1, 1], 2), {}),
    ("math.unsorted_segment_sqrt_n", (X, [2, 2], 3), {}),
    ("math.xdivy", (np.maximum(X, 0), np.maximum(X, 0)), {}),
    ("math.xlog1py", (np.maximum(X, 0), Y), {}),
    ("nn.avg_pool1d", (BATCH[0], 2, 2, "SAME"), {}),
    ("nn.avg_pool3d", (BATCH[None], 2, 1, "VALID"), {}),
    ("nn.convolution", (BATCH, FILTERS), {"strides": 2, "padding": "SAME"}),
    ("nn.max_pool1d", (BATCH[0], 2, 2, "VALID"), {}),
    ("nn.max_pool3d", (BATCH[None], [1, 1, 2, 2, 1], [1, 1, 1, 1, 1], "SAME"), {}),
    ("scalar_mul", (2.0, X), {}),
    ("math.erfc", (X,), {}),
    ("math.segment_mean", (X, [0, 0]), {}),
    ("math.softmax", (X,), {}),
    ("math.unsorted_segment_max", (X, [1, 1], 2), {}),
    ("math.unsorted_segment_mean", (X, [2, 2], 3), {}),
    ("math.xlogy", (np.maximum(X, 0), np.maximum(X, 0)), {}),
    ("math.zero_fraction", (N,), {}),
    ("meshgrid", (X[0], Y[1]), {"indexing": "ij"}),
    ("nn.conv1d", (BATCH[0], FILTERS[0], 2, "SAME"), {}),
    (
        "nn.conv2d_transpose",
        (BATCH, FILTERS[..., ::-1].transpose(0, 1, 3, 2), [2, 10, 8, 2], 2),
        {},
    ),
    ("nn.depth_to_space", (BATCH.repeat(4, -1), 2), {}),
    ("nn.space_to_depth", (BATCH[:, :4], 2), {}),
    ("nn.weighted_cross_entropy_with_logits", (np.abs(Y), 9 * X, 3.0), {}),
    ("saturate_cast", (1e3 * X, "uint8"), {}),
    ("searchsorted", ([1.0, 2.0, 4.0], [0.5, 2.0, 9.0]), {"side": "right"}),
    ("strided_slice", (X, [0, 0], [2, 3], [1, 2]), {}),
    ("strings.reduce_join", (TEXTS,), {"axis": 0, "separator": "-"}),
    ("strings.reduce_join", (TEXTS,), {}),
    ("strings.split", (b"a b  c",), {}),
    ("strings.unicode_split", ("héy", "UTF-8"), {}),
    ("tensor_scatter_nd_add", (X, [[0, 1], [0, 1]], [1.0, 2.0]), {}),
    ("unique", ([5, 2, 5, 9],), {}),
    ("unique_with_counts", ([b"b", b"a", b"b"],), {}),
    ("range", (3,), {}),
    ("range", (0, 1, 0.25), {}),
    ("range", (np.int64(3),), {}),
    ("concat", ([TEXTS, TEXTS], 1), {}),
    ("equal", (TEXTS, "C!d"), {}),
    ("gather", (TEXTS[:, 0], [1, 0]), {}),
    ("reshape", (TEXTS, [2]), {}),
    ("reverse", (TEXTS, [0]), {}),
    ("slice", (TEXTS, [0, 0], [-1, 1]), {}),
    ("strings.as_string", (X,), {}),
    ("strings.bytes_split", (b"ab",), {}),
    ("strings.ngrams", ([b"a", b"b", b"c"], 2), {}),
    ("strings.ngrams", ([b"a", b"b", b"c"], [1, 2]), {"separator": "_"}),
    ("strings.regex_full_match", (TEXTS, "C.*"), {}),
    ("strings.to_hash_bucket_fast", (TEXTS, 97), {}),
    ("bitwise.left_shift", (N, N), {}),
    ("dynamic_partition", (X, [1, 0], 2), {}),
    ("histogram_fixed_width", (X, [-1.0, 1.0]), {"nbins": 4}),
    ("image.adjust_gamma", (IMAGE, 0.5, 0.7), {}),
    (
        "image.crop_and_resize",
        (BATCH, [[0.1, 0.2, 0.7, 1.4], [0.9, 0.0, 0.2, 0.5]], [1, 0], [3, 4]),
        {},
    ),
    (
        "image.combined_non_max_suppression",
        (
            tf.constant(
                [[[[0.0, 0, 1, 1]], [[0, 0, 1.5, 0.9]], [[0.5, 0.5, 2, 2]]]] * 2
            ),
            tf.constant([[[0.7, 0.2], [0.9, 0.6], [0.8, 0.3]], [[0.1, 0.4]] * 3]),
            2,
            4,
        ),
        {"iou_threshold": 0.5, "score_threshold": 0.25},
    ),
    (
        "image.crop_and_resize",
        (ROW, [[0.0, 1 / 6, 0.0, 5 / 6]], [0], [1, 3]),
        {"method": "nearest"},
    ),
    (
        "image.draw_bounding_boxes",
        (BATCH, [[[0.1, 0.2, 0.7, 0.8]]] * 2, [[1.0, 0.0, 0.5]]),
        {},
    ),
    ("image.image_gradients", (tf.constant(BATCH),), {}),
    (
        "image.non_max_suppression",
        ([[0.0, 0, 1, 1], [0, 0, 1, 0.9], [0.5, 0.5, 2, 2]], [0.7, 0.9, 0.8], 3),
        {"iou_threshold": 0.5},
    ),
    ("image.sobel_edges", (tf.constant(BATCH),), {}),
    ("image.transpose", (IMAGE,), {}),
    ("io.decode_csv", (["1,a,2.5", ",b,1"],), {"record_defaults": [[7], [""], [0.5]]}),
    ("io.decode_raw", (b"\x01\x00\x02\x00",), {"out_type": "int16"}),
    ("linalg.logdet", (np.eye(2, dtype=np.float32) * 3,), {}),
    ("math.polyval", ([2.0, 0.5, 1.0], X), {}),
    ("nn.compute_average_loss", (X[0],), {"global_batch_size": 6}),
    ("nn.crelu", (X,), {}),
    ("nn.local_response_normalization", (BATCH, 1, 1.0, 0.5, 0.75), {}),
    ("nn.log_poisson_loss", (np.abs(Y), X), {"compute_full_loss": True}),
    ("reverse_sequence", (N, [2, 3]), {"seq_axis": 1, "batch_axis": 0}),
    ("signal.dct", (X,), {"norm": "ortho"}),
    ("signal.fft", (X.astype(np.complex64),), {}),
    ("signal.frame", (X, 2, 2), {"pad_end": True}),
    ("signal.hann_window", (5,), {}),
    ("signal.linear_to_mel_weight_matrix", (4, 9, 8000, 80.0, 3800.0), {}),
    ("signal.mfccs_from_log_mel_spectrograms", (X,), {}),
    ("signal.stft", (np.sin(np.arange(40, dtype=np.float32)), 16, 8), {}),
    ("unravel_index", ([5, 3], [2, 3]), {}),
]


def arrays(result: Any) -> list[np.ndarray]:
    parts = result if isinstance(result, (list, tuple)) else [result]
    return [array for part in parts for array in _arrays(part)]


def _arrays(part: Any) -> list[np.ndarray]:
    if isinstance(part, (list, tuple)):
        return arrays(part)
    return [np.asarray(part.numpy() if hasattr(part, "numpy") else part)]


def theirs(name: str) -> Any:
    found = tf
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_a_function_is_tensorflows(name, args, kwargs):
    expected = arrays(theirs(name)(*args, **kwargs))
    if name in ("sort", "argsort") and not hasattr(ops, name):
        pytest.skip("sorting is not there yet")
    results = arrays(namespaces.find(name)(*args, **kwargs))
    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        if wanted.dtype.kind in "OS":
            assert result.tolist() == wanted.tolist()
            continue
        assert result.dtype == wanted.dtype
        np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("index", [0, 1, 5, -1])
def test_functions_that_call_functions_are_tensorflows(index):
    def branches(module):
        return [lambda: module.constant(1.0), lambda: module.constant(2.0)]

    ours = namespaces.load("")
    for module in (ours, tf):
        wanted = tf.switch_case(tf.constant(index), branches(tf))
        assert float(
            module.switch_case(module.constant(index), branches(module))
        ) == float(wanted)
        stages = module.scan(lambda a, b: a * 0.5 + b, X[0])
        np.testing.assert_allclose(stages, [0.3, -1.05, 1.475], rtol=1e-6)
        falling = module.scan(lambda a, b: a - b, X[0], 1.0, reverse=True)
        np.testing.assert_allclose(
            falling, 1.0 - np.cumsum(X[0][::-1])[::-1], rtol=1e-5
        )
        total = module.foldl(lambda a, b: a + b, X[0], initializer=np.float32(1))
        assert float(total) == pytest.approx(2.1)


ROWS = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


@pytest.mark.parametrize(
    "function",
    [
        lambda tf, x: tf.boolean_mask(x, [True, False, True, True]),
        lambda tf, x: tf.dynamic_partition(x, [0, 1, 0, 1], 2)[1],
        lambda tf, x: x[x > 1.5],
        lambda tf, x: tf.reshape(x, (2, 2))[tf.reshape(x, (2, 2)) > 1.5],
        lambda tf, x: tf.gather(x, tf.where(x > 1.5)[:, 0]),
        lambda tf, x: tf.linalg.expm(tf.reshape(x, (2, 2)) * 0.1),
        lambda tf, x: tf.abs(tf.signal.fft(tf.cast(x, tf.complex64))),
        lambda tf, x: tf.abs(tf.signal.stft(x, 2, 1)),
        lambda tf, x: tf.math.real(tf.math.conj(tf.signal.rfft(x)) * tf.signal.rfft(x)),
        lambda tf, x: tf.math.angle(tf.signal.rfft(x * x)),
        lambda tf, x: tf.math.real(tf.signal.ifft(tf.signal.fft(tf.complex(x, -x)))),
        lambda tf, x: tf.signal.irfft(tf.signal.rfft(x) / tf.complex(2.0, 1.0)),
        lambda tf, x: tf.math.imag(tf.exp(tf.complex(x * 0.0, x))),
        lambda tf, x: tf.abs(tf.signal.fftshift(tf.signal.rfft(x * x))) * [1.0, 2, 3],
        lambda tf, x: tf.math.real(
            tf.signal.ifft2d(tf.signal.fft2d(tf.cast([x, x * x], tf.complex64)))
        ),
        lambda tf, x: tf.abs(
            tf.reduce_sum(tf.reshape(tf.signal.rfft(x), (1, -1))[:, :2] - 1.0, axis=1)
        ),
    ],
)
def test_slopes_of_arrays_and_complex_numbers_are_tensorflows(function):
    slopes = []
    for module in (namespaces.load(""), tf):
        point = module.Variable(ROWS)
        with module.GradientTape() as tape:
            y = module.reduce_sum(function(module, point * 1.0) ** 2)
        slopes.append(np.asarray(tape.gradient(y, point)))
    np.testing.assert_allclose(*slopes, rtol=1e-4)


def test_parts_are_chosen_by_numbers_in_a_layer_that_is_called_on_arrays():
    class Parts(keras.layers.Layer):
        def call(self, x, parts):
            ours = namespaces.load("")
            first, second = ours.dynamic_partition(x, parts, 2)
            return ours.reduce_sum(first) - ours.reduce_sum(second)

    layer = Parts()
    point = keras.Variable(ROWS)
    with keras.GradientTape() as tape:
        y = layer(point * 1.0, np.array([0, 1, 0, 1]))
    assert tape.gradient(y, point).numpy().tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize(
    "function",
    [
        lambda tf, x: x * tf.ones((tf.shape(x)[0], 1, 1, 3)),
        lambda tf, x: x + tf.cast(tf.range(tf.shape(x)[1]), tf.float32)[:, None, None],
        lambda tf, x: tf.reshape(x, (tf.shape(x)[0], tf.shape(x)[1] * 12)),
        lambda tf, x: tf.reshape(x, (-1, *(tf.shape(x)[1:3] * 2 // 2), 3)),
        lambda tf, x: tf.broadcast_to(x[:, :1], tf.shape(x)),
        lambda tf, x: x / tf.cast(tf.size(x), tf.float32),
        lambda tf, x: tf.gather_nd(x, [[0, 1], [1, 2]]),
        lambda tf, x: tf.gather(x, tf.cast(x[:, 0, :2, 0] * 2, tf.int32), batch_dims=1),
        lambda tf, x: tf.image.central_crop(x, 0.5),
        lambda tf, x: tf.image.sobel_edges(x),
    ],
)
@pytest.mark.parametrize("shape", [(5, 4, 3), (None, None, 3)])
def test_functions_on_keras_tensors_of_sizes_that_are_not_known(function, shape):
    inputs = keras.Input(shape)
    model = keras.Model(inputs, function(namespaces.load(""), inputs))
    wanted = function(tf, tf.constant(BATCH))
    assert len(model.outputs[0].shape) == len(wanted.shape)
    np.testing.assert_allclose(model(BATCH), wanted, rtol=1e-5, atol=1e-6)


def test_a_function_returns_complex_numbers():
    for module in (namespaces.load(""), tf):
        whole = module.function(lambda x, tf=module: tf.signal.rfft(x))(ROWS)
        assert whole.dtype == np.complex64
        np.testing.assert_allclose(whole.numpy(), np.fft.rfft(ROWS), rtol=1e-5)
        rows = module.data.Dataset.from_tensor_slices(ROWS.reshape(2, 2))
        (batch,) = rows.map(lambda x, tf=module: tf.signal.rfft(x)).batch(2)
        np.testing.assert_allclose(module.abs(batch), [[3, 1], [7, 1]], rtol=1e-5)


def test_what_is_not_computed_with_complex_numbers_is_refused_by_name():
    ours = namespaces.load("")
    with (
        ours.GradientTape(),
        pytest.raises(NotImplementedError, match=r"tf\.math\.erf"),
    ):
        ours.math.erf(ours.signal.rfft(ROWS))


def test_decoders_of_ctc_are_tensorflows():
    scores = np.random.default_rng(0).normal(size=(6, 3, 4)).astype(np.float32)
    lengths = np.array([6, 4, 1], np.int32)
    ours = namespaces.load("")
    for name, options in [
        ("ctc_greedy_decoder", {}),
        ("ctc_greedy_decoder", {"blank_index": 0}),
        ("ctc_beam_search_decoder", {"beam_width": 5, "top_paths": 2}),
    ]:
        found, own_scores = getattr(ours.nn, name)(scores, lengths, **options)
        wanted, their_scores = getattr(tf.nn, name)(scores, lengths, **options)
        np.testing.assert_allclose(own_scores, their_scores, rtol=1e-4)
        for mine, their in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(mine.indices, their.indices)
            np.testing.assert_array_equal(mine.values, their.values)


def test_shapes_that_do_not_fit_are_what_tensorflow_calls_them():
    ours = namespaces.load("")
    with pytest.raises(ours.errors.InvalidArgumentError, match="inner sizes differ"):
        ours.matmul(X, X)


def test_checks_of_shapes_and_types():
    debugging = namespaces.load("debugging")
    debugging.assert_shapes([(X, ("n", "k")), (Y[0], ("k",))])
    debugging.assert_shapes([(BATCH, ("b", ..., 3))])
    debugging.assert_type(X, "float32")
    debugging.assert_none_equal(X, 9.0)
    for check, args in [
        ("assert_shapes", ([(X, ("n", "n"))],)),
        ("assert_shapes", ([(X, (2, 3, 1))],)),
        ("assert_rank_at_least", (X, 3)),
        ("assert_rank_in", (X, (1, 3))),
        ("assert_scalar", (X,)),
        ("assert_negative", (X,)),
        ("assert_none_equal", (X, X)),
    ]:
        with pytest.raises(ValueError, match=check):
            getattr(debugging, check)(*args)
    for check, args in [("assert_type", (X, "int32")), ("assert_integer", (X,))]:
        with pytest.raises(TypeError, match=check):
            getattr(debugging, check)(*args)


def test_the_slope_of_lgamma_is_tensorflows():
    x = np.array([-1.3, 0.2, 0.7, 1.0, 2.0, 9.5], np.float32)
    for module in (namespaces.load(""), tf):
        point = module.Variable(x)
        with module.GradientTape() as tape:
            y = module.math.lgamma(point)
        slope = np.asarray(tape.gradient(y, point))
        np.testing.assert_allclose(slope, tf.math.digamma(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("log", (np.abs(X),), {}),
        ("to_float", (N,), {}),
        ("reduce_sum", (X,), {"axis": 1, "keep_dims": True}),
        ("reduce_mean", (X,), {"reduction_indices": [1]}),
        ("expand_dims", (X,), {"dim": 0}),
        ("squared_difference", (X, Y), {}),
        ("arg_max", (X,), {"dimension": 1}),
    ],
)
def test_functions_of_tensorflow_1_are_found(name, args, kwargs):
    wanted = getattr(tf.compat.v1, name)(*args, **kwargs)
    result = namespaces.find(name)(*args, **kwargs)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_a_module_lists_what_it_holds_as_tensorflow_does():
    def shapes(module):
        class Inner(module.Module):
            def __init__(self):
                super().__init__()
                self.w = module.Variable(np.zeros((2, 3), "float32"))
                self.b = module.Variable(np.zeros(3, "float32"), trainable=False)

        class Outer(module.Module):
            def __init__(self):
                super().__init__(name="outer")
                inner = Inner()
                self.parts = [inner, {"again": inner, "other": Inner()}]
                self.last = module.Variable(np.zeros(4, "float32"))

            @module.Module.with_name_scope
            def __call__(self):
                return len(self.submodules)

        outer = Outer()
        groups = (outer.variables, outer.trainable_variables)
        groups += (outer.non_trainable_variables,)
        return outer(), [[tuple(v.shape) for v in group] for group in groups]

    assert shapes(namespaces.load("")) == shapes(tf)


def test_stateless_numbers_depend_on_their_seed_alone():
    module = namespaces.load("")
    draw = module.random.stateless_uniform
    first = draw((3,), seed=(1, 2)).numpy()
    assert np.array_equal(first, draw((3,), seed=(1, 2)))
    assert not np.array_equal(first, draw((3,), seed=(2, 1)))
    whole = draw((99,), (0, 0), 5, 8, "int32").numpy()
    assert set(whole) == {5, 6, 7}


def test_arguments_are_named_and_ordered_as_tensorflows():
    wrong = []
    for name, entry in namespaces.table().items():
        signature = inspect.signature(theirs(name))
        order = list(signature.parameters)
        ours = [argument for argument in entry.arguments if argument != "*"]
        known = [argument for argument in ours if argument in order]
        if known != ours or sorted(known, key=order.index) != known:
            wrong.append((name, ours, order))
    assert wrong == []


def test_every_name_is_one_of_tensorflows():
    gone = (  # from TensorFlow 2, where some are below `compat.v1`
        "config.experimental.list_physical_devices",
        "test.is_gpu_available",
        "ConfigProto",
        "GPUOptions",
        "Session",
        "InteractiveSession",
        "logging.",
        "set_random_seed",
        "Graph",
        "get_default_graph",
        "reset_default_graph",
        *("global_variables_initializer", "initialize_all_variables"),
        *("local_variables_initializer", "tables_initializer"),
        *("enable_eager_execution", "disable_eager_execution"),
        *("train.GradientDescent", "train.Momentum"),
        *("train.Ada", "train.RMSPropOptimizer", "python.client."),
        "compat.v1.keras.",  # not with Keras 3
    )
    for name in OBJECTS:
        if not name.startswith(gone):
            theirs(name)


def test_types_are_words_with_attributes():
    find = namespaces.find
    assert find("float32") == "float32" == np.dtype("float32")
    assert find("double") == find("float64") == find("dtypes.float64")
    assert np.zeros(2, find("int8")).dtype == find("int8")
    assert find("float32") != find("float64")
    assert find("float32").max == tf.float32.max
    assert find("string").as_numpy_dtype is tf.string.as_numpy_dtype


def test_variables():
    variable = namespaces.find("Variable")([1.0, 2.0], name="a/b", trainable=False)
    assert not variable.trainable
    variable.assign_add([1.0, 1.0])
    assert variable.numpy().tolist() == [2.0, 3.0]
    assert isinstance(variable, namespaces.find("Variable"))
    assert namespaces.find("Variable")(np.zeros(2)).dtype == "float64"


def test_images_are_rows_columns_and_channels_whatever_keras_takes_them_for():
    keras.config.set_image_data_format("channels_first")
    try:
        resized = tf.image.resize(BATCH, (3, 8))
    finally:
        keras.config.set_image_data_format("channels_last")
    assert np.array_equal(resized, tf.image.resize(BATCH, (3, 8)))


def test_devices_are_those_that_are_there():
    cpu = namespaces.find("config.list_physical_devices")("CPU")
    assert [device.device_type for device in cpu] == ["CPU"]


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("compat.v1.placeholder", "TensorFlow 1"),
        ("RaggedTensor", "Pad the rows"),
        ("data.TFRecordDataset", "NumPy"),
        ("distribute.TPUStrategy", "one device"),
        ("signal.inverse_stft", "keras.ops"),
        ("reduce_summ", "Did you mean tf.reduce_sum"),
    ],
)
def test_what_is_missing_is_refused_by_its_full_name(name, way_out):
    with pytest.raises(AttributeError) as error:
        namespaces.find(name)
    assert str(error.value).startswith(f"tensorflow.{name}: ")
    assert way_out in str(error.value)


def test_an_argument_that_is_missing_is_refused():
    with pytest.raises(TypeError, match=r"tf.transpose: the argument 'conjugate'"):
        namespaces.find("transpose")(X, conjugate=True)


def test_the_version_is_that_of_the_keras_it_speaks():
    assert namespaces.find("__version__") == "2.21.0"
    keras2.set_active(True)
    try:
        assert namespaces.find("__version__") == "2.15.0"
        assert aliases.version_of("keras") == "2.15.0"
    finally:
        keras2.set_active(None)


def test_every_name_is_listed_once() -> None:
    for modules, text in names.FUNCTIONS:
        listed = [line.strip().partition("(")[0] for line in text.splitlines()]
        once = set(filter(None, listed))
        assert sorted(once) == sorted(filter(None, listed)), modules


def test_images_of_long_whole_numbers_keep_their_colours():
    thin = namespaces.load("")
    for change, amount in (("adjust_hue", 0.2), ("adjust_saturation", 0.5)):
        function = getattr(thin.image, change)
        narrow = function(PIXELS, amount).numpy().astype(int)
        assert abs(function(PIXELS.astype(int), amount).numpy() - narrow).max() <= 1
