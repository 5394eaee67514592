"""Shapes and types of calls on Keras tensors with unknown axes, as Keras has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganglion import ops
from ganglion.symbolic import KerasTensor

pytestmark = pytest.mark.rivals

CALLS: dict[str, Any] = {
    "prod": lambda o, t: o.prod(t((None, 3, 4)), axis=1),
    "prod2": lambda o, t: o.prod(t((None, 3)), keepdims=True),
    "cumprod": lambda o, t: o.cumprod(t((None, 3)), axis=1),
    "cumprodn": lambda o, t: o.cumprod(t((None, 3))),
    "nanvar": lambda o, t: o.nanvar(t((None, 3)), axis=0),
    "nanargmax": lambda o, t: o.nanargmax(t((None, 3)), axis=1, keepdims=True),
    "sort": lambda o, t: o.sort(t((None, 3))),
    "sort0": lambda o, t: o.sort(t((None, 3)), axis=0),
    "sortn": lambda o, t: o.sort(t((None, 3)), axis=None),
    "argsort": lambda o, t: o.argsort(t((None, 3)), axis=0),
    "argpartition": lambda o, t: o.argpartition(t((None, 3)), 1),
    "searchsorted": lambda o, t: o.searchsorted(t((5,)), t((None, 3))),
    "digitize": lambda o, t: o.digitize(t((None, 3)), np.array([0.0, 1.0])),
    "isin": lambda o, t: o.isin(t((None, 3)), t((4,))),
    "histogram": lambda o, t: o.histogram(t((None,)), bins=5),
    "bincount": lambda o, t: o.bincount(t((None,), "int32")),
    "bincount2": lambda o, t: o.bincount(t((3, 4), "int32")),
    "nonzero": lambda o, t: o.nonzero(t((None, 3, 4))),
    "unique": lambda o, t: o.unique(t((None, 3))),
    "uniq2": lambda o, t: o.unique(t((None, 3)), return_counts=True, size=4),
    "uniq3": lambda o, t: o.unique(t((5, 3)), axis=0, return_inverse=True),
    "median": lambda o, t: o.median(t((None, 3)), axis=1),
    "median0": lambda o, t: o.median(t((None, 3, 4)), axis=(0, 2), keepdims=True),
    "quantile": lambda o, t: o.quantile(
        t((None, 3)), np.array([0.1, 0.5], "float32"), axis=0
    ),
    "nanquantile": lambda o, t: o.nanquantile(t((None, 3)), 0.5, axis=1),
    "cross": lambda o, t: o.cross(t((None, 3)), t((None, 3))),
    "cross2": lambda o, t: o.cross(t((None, 2)), t((None, 2))),
    "kron": lambda o, t: o.kron(t((None, 3)), t((2, 4))),
    "correlate": lambda o, t: o.correlate(t((7,)), t((3,)), mode="same"),
    "diagflat": lambda o, t: o.diagflat(t((None, 3))),
    "trapezoid": lambda o, t: o.trapezoid(t((None, 3)), axis=0),
    "vander": lambda o, t: o.vander(t((None,)), N=4),
    "cdist": lambda o, t: o.cdist(t((None, 3)), t((5, 3))),
    "depth": lambda o, t: o.depth_to_space(t((None, None, 6, 8)), 2),
    "space": lambda o, t: o.space_to_depth(t((None, 4, 6, 3)), 2),
    "unfold": lambda o, t: o.unfold(t((None, 3, 8, 8)), 2),
    "fold": lambda o, t: o.fold(t((None, 12, 49)), (8, 8), 2),
    "dstack": lambda o, t: o.dstack([t((None, 3)), t((None, 3))]),
    "dsplit": lambda o, t: o.dsplit(t((None, 3, 4)), 2),
    "unravel": lambda o, t: o.unravel_index(t((None,), "int32"), (2, 3)),
    "view": lambda o, t: o.view(t((None, 4)), "int16"),
    "segment_max": lambda o, t: o.segment_max(
        t((None, 4)), t((None,), "int32"), num_segments=5
    ),
    "arctan2": lambda o, t: o.arctan2(t((None, 3)), t((1, 3))),
    "bitand": lambda o, t: o.bitwise_and(t((None, 3), "int32"), t((None, 3), "int32")),
    "ldexp": lambda o, t: o.ldexp(t((None, 3)), t((None, 3), "int32")),
    "logspace": lambda o, t: o.logspace(t((None, 3)), t((None, 3)), num=5),
    "geomspace": lambda o, t: o.geomspace(t((None, 3)), t((None, 3)), num=5, axis=-1),
    "nancumsum": lambda o, t: o.nancumsum(t((None, 3)), axis=(1,)),
    "nancumprod": lambda o, t: o.nancumprod(t((2, 3)), axis=()),
    "psnr": lambda o, t: o.psnr(t((None, 3)), t((None, 3)), 1.0),
    "isreal": lambda o, t: o.isreal(t((None, 3))),
    "sat": lambda o, t: o.saturate_cast(t((None, 3)), "uint8"),
    "i0": lambda o, t: o.i0(t((None, 3))),
    "signbit": lambda o, t: o.signbit(t((None, 3))),
    "gcd": lambda o, t: o.gcd(t((None, 3), "int32"), t((3,), "int32")),
}


def described(results: Any) -> list[tuple[Any, str]]:
    parts = results if isinstance(results, (list, tuple)) else [results]
    return [(tuple(part.shape), str(part.dtype)) for part in parts]


@pytest.mark.parametrize("name", CALLS)
def test_unknown_axes(keras, name: str) -> None:
    theirs = CALLS[name](keras.ops, keras.KerasTensor)
    assert described(CALLS[name](ops, KerasTensor)) == described(theirs)
