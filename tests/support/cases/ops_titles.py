"""Names of calls in a test's title, and how their results are compared."""

from __future__ import annotations

import numpy as np
import ops_cases_edges  # noqa: F401 (adds its calls to the table)
import ops_cases_nn  # noqa: F401
import ops_cases_numpy  # noqa: F401
from ops_cases import Call

from ganglion import tree


def title(call: Call) -> str:
    shapes = [str(getattr(arg, "shape", arg)) for arg in tree.flatten(call.args)]
    options = [f"{key}={value}" for key, value in call.kwargs.items()]
    return f"{call.name}({', '.join([*shapes, *options])})"[:90]


def assert_equal(actual, expected: np.ndarray, name: str = "") -> None:
    """Compare values, shape and type: float32, int32 or bool, unless asked for."""
    assert isinstance(actual, (np.ndarray, np.generic))
    assert actual.shape == expected.shape
    assert actual.dtype.kind == expected.dtype.kind or actual.dtype.kind in "iu"
    if actual.dtype.kind == "f":
        assert actual.dtype == np.float32
    # float32 rounds at 6e-8; a few ulps per op, and sums of cancelling terms.
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2e-6, err_msg=name)
