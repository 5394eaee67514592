"""Calls of the rest of NumPy's functions, added to the table of `ops_cases`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ops_cases import BYTES, CALLS, ODD, B, C, I, J, M, N, P, U, V, X, call, rng
from ops_cases_edges import EMPTY, HOLES, LONG

_before = len(CALLS)
SHIFTS = np.array([[0, 1, 3], [2, 31, 4]], "int32")
POSITIVE = np.array([[12, 18, 7], [0, 9, 30]], "int32")
POINTS = np.array([[0.0, -0.0, 1.0], [-1.0, 2.5, -3.0]], "float32")
erfc = np.vectorize(math.erfc, otypes=["float64"])

# ---- elements ------------------------------------------------------------------------

for name in ("arcsin", "arccos"):
    call(name, U)
for name in ("arctan", "cbrt", "i0", "sinc"):
    call(name, M)
    call(name, I, by=None)
call("sinc", POINTS)
call("erfc", M, by=erfc)
call("erfinv", U, by=None)
call("erfinv", np.array([-1.0, 0.0, 1.0, 0.999], "float32"), by=None)
for name in ("arctan2", "fmax", "fmin", "fmod", "logaddexp2", "nextafter"):
    call(name, M, P)
for name in ("fmax", "fmin"):
    call(name, ODD, M)
    call(name, I, J)
call("fmod", I, J)
call("arctan2", POINTS, -POINTS)
call("ldexp", M, J)
call("signbit", POINTS)
call("signbit", I)
call("gcd", POSITIVE, J)
call("lcm", POSITIVE, J)
call("isreal", M)
call("saturate_cast", M * 200, "uint8", by=None)
call("saturate_cast", I, "uint8", by=None)
call("saturate_cast", M * 1e10, "int32", by=None)
call("saturate_cast", BYTES, "int8", by=None)

# ---- bits ----------------------------------------------------------------------------

for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    call(name, I, J)
    call(name, B[:1], C[:1])
call("bitwise_and", I, 3, by=None)
call("bitwise_not", I)
call("bitwise_not", BYTES)
call("bitwise_invert", I, by=np.invert)
for name in ("left_shift", "right_shift"):
    call(name, I, SHIFTS)
    call(f"bitwise_{name}", I, SHIFTS, by=getattr(np, name))
call("right_shift", BYTES, np.uint8(3))

# ---- products, and what leaves NaN out -----------------------------------------------


def in_float32(function: Any) -> Any:
    """Return a function whose result has the type of its argument."""
    return lambda x, **options: np.asarray(function(x, **options)).astype(x.dtype)


for axis in (None, 0, (0, 2), -1):
    call("prod", X, axis=axis)
call("prod", X, axis=1, keepdims=True)
call("prod", I, by=None)
call("prod", BYTES, axis=0, by=None)
call("prod", I, axis=1, dtype="float32", by=None)
call("prod", EMPTY, axis=1)
call("cumprod", X, axis=1)
call("cumprod", M)
call("cumprod", I, axis=0, by=None)
call("cumprod", I, axis=0, dtype="float32", by=None)
for name in ("nanprod", "nanvar", "nanstd"):
    call(name, HOLES)
    call(name, HOLES[:1], axis=1, keepdims=True)
    call(name, HOLES, axis=1, by=None)
    call(name, I, axis=1, by=None)
for name in ("nancumsum", "nancumprod"):
    call(name, HOLES)
    call(name, HOLES, axis=1)
    call(name, I, axis=0, by=None)
for name in ("nanargmax", "nanargmin"):
    call(name, HOLES[:1], axis=1)
    call(name, HOLES)
    call(name, HOLES, axis=1, keepdims=True, by=None)
    call(name, LONG, axis=0)

# ---- order ---------------------------------------------------------------------------

ORDERED = np.array([-1.5, 0.0, 0.0, 2.0, 3.5], "float32")
FALLING = ORDERED[::-1].copy()
FOUND = np.array([[-2.0, 0.0, 2.0], [1.0, 3.5, 9.0]], "float32")
COUNTED = np.array([1, 3, 3, 0, 5], "int32")
ROWS_COUNTED = np.array([[1, 3, 3], [0, 1, 2]], "int32")
WEIGHTS = np.array([0.5, 1.0, 2.0, 4.0, 8.0], "float32")
FEW = np.array([[3, 1, 3], [1, 2, 2], [3, 1, 3]], "int32")
NONE = np.zeros((0,), "float32")

for axis in (-1, 0, 1, None):
    call("sort", X, axis=axis)
    call("argsort", X, axis=axis)
call("sort", I)
call("sort", HOLES, axis=1, by=None)
call("argsort", FEW, by=lambda x: np.argsort(x, kind="stable"))
call("argpartition", X, 1, by=lambda x, k: np.argsort(x, kind="stable"))
call("argpartition", M, 2, axis=None, by=lambda x, k, axis: np.argsort(x, axis=None))
for side in ("left", "right"):
    call("searchsorted", ORDERED, FOUND, side=side)
call("searchsorted", COUNTED[3:], I, by=None)
call("digitize", FOUND, ORDERED)
call("digitize", FOUND, FALLING, by=np.digitize)
call("digitize", I, np.array([-1, 2, 3]), by=None)
call("isin", I, J)
call("isin", I, np.array([7, 0]), invert=True)
call("histogram", X.reshape(-1), by=None)
call("histogram", X.reshape(-1), bins=4, range=(-1.0, 1.5), by=None)
call("histogram", COUNTED, bins=3, by=None)
for q in (0.3, np.array([0.0, 0.5, 0.9], "float32")):
    call("quantile", X, q, axis=1)
    call("quantile", X, q, axis=(0, 2), keepdims=True)
    call("percentile", M, q * 100, by=None)
    call("nanquantile", HOLES[:1], q, axis=1)
    call("nanpercentile", HOLES[:1], q * 100, by=None)
for method in ("lower", "higher", "midpoint", "nearest"):
    call("quantile", X, 0.3, axis=1, method=method)
    call("nanquantile", HOLES[:1], 0.3, axis=1, method=method)
call("quantile", I, 0.4, by=None)
call("nanquantile", HOLES, 0.4, axis=1, by=None)
for name in ("median", "nanmedian"):
    call(name, X)
    call(name, X, axis=(0, 2), keepdims=True)
    call(name, HOLES[:1], axis=1)
    call(name, I, axis=0, by=None)

# ---- products and sums over vectors --------------------------------------------------

PAIRS = rng.uniform(-2, 2, (4, 2)).astype("float32")
TRIPLES = rng.uniform(-2, 2, (4, 3)).astype("float32")
OTHERS = rng.uniform(-2, 2, (4, 3)).astype("float32")
LINE = rng.uniform(-2, 2, (7,)).astype("float32")
call("cross", TRIPLES, OTHERS)
call("cross", TRIPLES.T, OTHERS.T, axis=0)
call("cross", TRIPLES, OTHERS.T, axisb=0, axisc=0)
call("cross", TRIPLES, PAIRS, by=None)
call("cross", PAIRS, -PAIRS[::-1], by=None)
call("cross", I, J)
call("kron", M, N)
call("kron", V, M)
call("kron", I, J)
call("corrcoef", TRIPLES)
call("corrcoef", I, by=None)
for mode in ("valid", "same", "full"):
    call("correlate", LINE, V, mode=mode)
    call("correlate", V, LINE, mode=mode)
    call("correlate", LINE, LINE[:4], mode=mode)
call("diagflat", M)
call("diagflat", V, k=-1)
call("trapezoid", X, dx=0.5)
call("trapezoid", X, axis=1)
call("trapezoid", M, x=V)
call("trapezoid", X, x=X + 1, axis=1, by=None)
call("vander", V)
call("vander", V, N=4, increasing=True)
call("vander", I[0], by=None)
call("cdist", TRIPLES, OTHERS[:2], by=None)

# ---- numbers in a row, windows -------------------------------------------------------

call("logspace", 0.0, 2.0, num=4, by=None)
call("logspace", V, V + 1, num=3, endpoint=False, base=2.0, axis=-1, by=None)
call("geomspace", 1.0, 8.0, num=4, by=None)
call("geomspace", P, P * 9, num=3, axis=1, by=None)
call("geomspace", -P, -P * 9, num=3, endpoint=False, by=None)
for name in ("bartlett", "blackman", "hamming", "hanning"):
    call(name, 7)
    call(name, 1)
call("kaiser", 6, 4.0)

# ---- other arrangements --------------------------------------------------------------

BLOCKS = rng.uniform(-1, 1, (2, 4, 6, 8)).astype("float32")
for layout in ("channels_last", "channels_first"):
    call("depth_to_space", BLOCKS if layout[9] == "l" else BLOCKS.transpose(0, 3, 1, 2),
         2, data_format=layout, by=None)  # fmt: skip
    call("space_to_depth", BLOCKS, 2, data_format=layout, by=None)
call("psnr", M, M + 0.5, 2.0, by=None)
call("unfold", BLOCKS, 2, by=None)
call("unfold", BLOCKS, (3, 2), dilation=(1, 2), padding=(1, 0), stride=2, by=None)
call("fold", rng.uniform(-1, 1, (2, 12, 15)).astype("float32"), (4, 6), (2, 2),
     by=None)  # fmt: skip
call("fold", rng.uniform(-1, 1, (2, 12, 12)).astype("float32"), (4, 6), 2, padding=1,
     stride=2, by=None)  # fmt: skip
call("extract_sequences", X, 2, 1, by=None)
call("extract_sequences", LINE, 3, 2, by=None)
call("rearrange", BLOCKS, "b h w c -> b (c h w)", by=None)
call("rearrange", BLOCKS, "b (h n) (w m) c -> (b n m) h w c", n=2, m=3, by=None)
call("dstack", [M, M + 1])
call("dstack", [X, X])
call("dsplit", X, 2)
call("dsplit", X, [1, 3])
call("unravel_index", COUNTED, (2, 3))
call("unravel_index", ROWS_COUNTED, (2, 2, 3))
call("view", I, "float32", by=None)
call("view", BYTES, "int8", by=None)
call("view", X, "int16", by=None)

# ---- segments ------------------------------------------------------------------------

SEGMENTS = np.array([2, 0, 2, 1], "int32")
for name in ("segment_max", "segment_min", "segment_prod"):
    call(name, TRIPLES, SEGMENTS, num_segments=3, by=None)
    call(name, COUNTED[:4], SEGMENTS, num_segments=3, by=None)
call("segment_max", TRIPLES, SEGMENTS, num_segments=4, by=None)

# ---- shapes that depend on data: on arrays only --------------------------------------

EAGER = len(CALLS)
call("bincount", COUNTED)
call("bincount", COUNTED, minlength=9)
call("bincount", COUNTED, weights=WEIGHTS, by=None)
call("bincount", ROWS_COUNTED, minlength=5, by=None)
call("nonzero", POINTS)
call("where", POINTS)
call("unique", FEW)
call("unique", FEW, axis=0)
call("unique", FEW, return_index=True, return_inverse=True, return_counts=True)
EAGER_CALLS = CALLS[EAGER:]
del CALLS[EAGER:]
call("unique", FEW, size=2, by=lambda x, size: np.unique(x)[:2])
call("unique", FEW, size=5, fill_value=-1, return_counts=True, by=None)
call("unique", FEW, size=3, axis=0, return_index=True, by=None)
NUMPY_CALLS = [*CALLS[_before:], *EAGER_CALLS]
