"""The calls of neural network functions, added to the table of `ops_cases`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from ops_cases import (
    BACK,
    DEPTH,
    EVEN,
    GROUPED,
    HEADS,
    HOT,
    IMAGES,
    KERNEL,
    KEYS,
    LABELS,
    MIX,
    ROWS,
    VALUES,
    WAVES,
    B,
    C,
    M,
    P,
    U,
    V,
    X,
    Y,
    call,
    erf,
    sigmoid,
    softmax,
)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(x, 0)


FAR = np.array([-100.0, -30.0, -1.0, -1e-6, 0.0, 1e-6, 1.0, 30.0, 100.0], "float32")
ACTIVATIONS: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.2 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "celu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: (
        1.0507009873554805
        * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))
    ),
    "gelu": lambda x: (
        0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "sigmoid": sigmoid,
    "log_sigmoid": lambda x: -softplus(-x),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "silu": lambda x: x * sigmoid(x),
    "swish": lambda x: x * sigmoid(x),
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "hard_swish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "softplus": softplus,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_shrink": lambda x: np.where(np.abs(x) > 0.5, x, 0),
    "soft_shrink": lambda x: np.sign(x) * np.maximum(np.abs(x) - 0.5, 0),
    "tanh_shrink": lambda x: x - np.tanh(x),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x < 1, (x + 1) ** 2 / 4, x)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
}
for name, meaning in ACTIVATIONS.items():
    call(name, X, by=meaning)
    call(name, FAR, by=meaning)
call("gelu", X, approximate=False,
     by=lambda x, approximate: x * (1 + erf(x / math.sqrt(2))) / 2)  # fmt: skip
call("leaky_relu", X, negative_slope=0.3,
     by=lambda x, negative_slope: np.where(x > 0, x, negative_slope * x))  # fmt: skip
call("celu", X, alpha=2.0,
     by=lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x / alpha)))  # fmt: skip
call("threshold", X, 0.5, -1.0, by=lambda x, t, v: np.where(x > t, x, v))
call("glu", EVEN, by=lambda x: x[:, :3] * sigmoid(x[:, 3:]))
call("softmax", X, by=softmax)
call("softmax", X * 50, axis=1, by=softmax)
call("log_softmax", X, axis=0, by=lambda x, axis: np.log(softmax(x, axis)))


def sparsemax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Find the level by halving, to which rows less the level add up to one."""
    low, high = x.min(axis, keepdims=True) - 1, x.max(axis, keepdims=True)
    for _ in range(60):
        middle = (low + high) / 2
        above = np.maximum(x - middle, 0).sum(axis, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.maximum(x - high, 0)


call("sparsemax", ROWS, by=sparsemax)
call("sparsemax", X, axis=1, by=sparsemax)

# ---- losses --------------------------------------------------------------------------

PROBABLE = softmax(ROWS.astype("float64")).astype("float32")
YES = (ROWS > 0).astype("float32")


def cross_entropy(target: Any, logits: Any, **_: Any) -> Any:
    return -(target * np.log(softmax(logits))).sum(-1)


call("categorical_crossentropy", HOT, ROWS, from_logits=True, by=cross_entropy)
call("categorical_crossentropy", HOT, PROBABLE,
     by=lambda t, p: -(t * np.log(p)).sum(-1))  # fmt: skip
call("categorical_crossentropy", HOT.T.copy(), ROWS.T.copy(), from_logits=True, axis=0,
     by=lambda t, x, from_logits, axis: cross_entropy(t.T, x.T))  # fmt: skip
call("sparse_categorical_crossentropy", LABELS, ROWS, from_logits=True,
     by=lambda i, x, from_logits: cross_entropy(np.eye(6)[i], x))  # fmt: skip
call("sparse_categorical_crossentropy", LABELS[:, None], PROBABLE,
     by=lambda i, p: -np.log(p[np.arange(4), i[:, 0]]))  # fmt: skip
call("binary_crossentropy", YES, ROWS, from_logits=True,
     by=lambda t, x, from_logits: softplus(x) - x * t)  # fmt: skip
call("binary_crossentropy", YES, PROBABLE,
     by=lambda t, p: -(t * np.log(p) + (1 - t) * np.log(1 - p)))  # fmt: skip
call("in_top_k", LABELS, ROWS, 2,
     by=lambda i, x, k: (x > x[np.arange(4), i][:, None]).sum(-1) < k)  # fmt: skip

# ---- normalisation -------------------------------------------------------------------


def moments(x: Any, axes: Any, keepdims: bool = False) -> Any:
    axes = tuple(axes)
    return x.mean(axes, keepdims=keepdims), x.var(axes, keepdims=keepdims)


call("moments", X, axes=[0, 1], by=moments)
call("moments", X, axes=[-1], keepdims=True, by=moments)
call("batch_normalization", X.swapaxes(1, 2).copy(), V, np.abs(V), -1,
     by=lambda x, m, v, axis: (x - m) / np.sqrt(v + 1e-3))  # fmt: skip
call("batch_normalization", X, V, np.abs(V), 1, V + 1, V * 2, epsilon=0.1,
     by=lambda x, m, v, axis, beta, gamma, epsilon: (
         (x - m[:, None]) / np.sqrt(v[:, None] + epsilon) * gamma[:, None]
         + beta[:, None]))  # fmt: skip
call("layer_normalization", X, by=lambda x: (x - x.mean(-1, keepdims=True))
     / np.sqrt(x.var(-1, keepdims=True) + 1e-7))  # fmt: skip
call("layer_normalization", X, Y[0, 0], Y[1, 1], epsilon=0.1,
     by=lambda x, g, b, epsilon: (x - x.mean(-1, keepdims=True))
     / np.sqrt(x.var(-1, keepdims=True) + epsilon) * g + b)  # fmt: skip
call("rms_normalization", X, Y[0, 0], epsilon=0.1, by=lambda x, g, epsilon:
     x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * g)  # fmt: skip
call("normalize", X, by=lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True))
call("normalize", X, axis=1, order=3, by=lambda x, axis, order:
     x / np.linalg.norm(x, order, axis, keepdims=True))  # fmt: skip

# ---- attention -----------------------------------------------------------------------


def attention(q: Any, k: Any, v: Any, mask: Any = None, is_causal: bool = False) -> Any:
    fit = np.einsum("bthd,bshd->bhts", q, k) / 2
    allowed = np.ones(fit.shape[-2:], bool) if mask is None else mask
    allowed = allowed & np.tri(*fit.shape[-2:], dtype=bool) if is_causal else allowed
    weights = softmax(np.where(allowed, fit, -1e30))
    return np.einsum("bhts,bshd->bthd", weights, v)


SEEN = np.random.default_rng(3).random((2, 1, 5, 6)) < 0.7
call("dot_product_attention", HEADS, KEYS, VALUES, by=attention)
call("dot_product_attention", HEADS, KEYS, VALUES, is_causal=True, by=attention)
call("dot_product_attention", HEADS, KEYS, VALUES, mask=SEEN, by=attention)

# ---- windows: compared with Keras; the primitives are with PyTorch -------------------

for padding in ("valid", "same"):
    call("conv", IMAGES, KERNEL, 1, padding, by=None)
    call("conv", IMAGES, KERNEL, (2, 3), padding, by=None)
    call("conv", IMAGES, KERNEL, 1, padding, dilation_rate=2, by=None)
    call("conv", WAVES, KERNEL[:, 0].copy(), 2, padding, by=None)
    call("conv", IMAGES, GROUPED, 1, padding, by=None)
    call("depthwise_conv", IMAGES, DEPTH, 1, padding, by=None)
    call("depthwise_conv", IMAGES, DEPTH, 2, padding, by=None)
    call("separable_conv", IMAGES, DEPTH, MIX, 2, padding, by=None)
    for stride in (1, 2, 3):
        call("conv_transpose", IMAGES, BACK, stride, padding, by=None)
    call("conv_transpose", WAVES, BACK[:, 0].copy(), 2, padding, by=None)
    call("max_pool", IMAGES, 2, None, padding, by=None)
    call("max_pool", IMAGES, (3, 2), (2, 1), padding, by=None)
    call("max_pool", WAVES, 3, 2, padding, by=None)
    call("average_pool", IMAGES, 2, None, padding, by=None)
    call("average_pool", IMAGES, (3, 2), (2, 1), padding, by=None)
    call("average_pool", WAVES, 4, 3, padding, by=None)
    first = {"padding": padding, "data_format": "channels_first"}
    call("average_pool", np.moveaxis(IMAGES, -1, 1).copy(), 2, None, **first, by=None)
for kind in ("average", "max"):
    call(f"adaptive_{kind}_pool", IMAGES, (2, 3), by=None)
    call(f"adaptive_{kind}_pool", WAVES, 4, by=None)
call("where", B & C, U, P, by=np.where)
call("maximum", M, U, by=np.maximum)
