"""Names of calls in a test's title, and how their results are compared."""

from __future__ import annotations

import numpy as np
import ops_cases_edges  # noqa: F401 (adds its calls to the table)
import ops_cases_nn  # noqa: F401
from ops_cases import Call

from ganglion import tree


def title(one: Call) -> str:
    shapes = [str(getattr(arg, "shape", arg)) for arg in tree.flatten(one.args)]
    options = [f"{key}={value}" for key, value in one.kwargs.items()]
    return f"{one.name}({', '.join([*shapes, *options])})"[:90]


def assert_equal(made, expected: np.ndarray, name: str = "") -> None:
    """Compare values, shape and type: float32, int32 or bool, unless asked for."""
    assert isinstance(made, (np.ndarray, np.generic))
    assert made.shape == expected.shape
    assert made.dtype.kind == expected.dtype.kind or made.dtype.kind in "iu"
    if made.dtype.kind == "f":
        assert made.dtype == np.float32
    # float32 rounds at 6e-8; a few ulps per op, and sums of cancelling terms.
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=2e-6, err_msg=name)
