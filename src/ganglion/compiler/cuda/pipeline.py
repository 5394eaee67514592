"""The GPU's passes in order, from a program to a plan."""

from __future__ import annotations

from functools import partial
from typing import Any

from ganglion.compiler.ir.program import Program
from ganglion.compiler.pipeline import Pass, Pipeline, graph_pass, kernel_pass
from ganglion.compiler.plan.lower import lower
from ganglion.compiler.plan.lowering import Preferences
from ganglion.compiler.plan.passes.collapse import collapse
from ganglion.compiler.plan.passes.fuse import fuse
from ganglion.compiler.plan.passes.graph import (
    integer_products_as_sums,
    transpose_narrow,
    without_empty,
)
from ganglion.compiler.plan.passes.moments import one_pass

PIPELINE = Pipeline(
    (
        graph_pass(
            "integer-products",
            "kernels multiply floats: products of whole numbers become sums",
            integer_products_as_sums,
            ops=("matmul",),
        ),
        graph_pass(
            "no-empty",
            "behind it, every kernel has something to do",
            without_empty,
        ),
        graph_pass(
            "one-pass-moments",
            "batch norm reads its data once, and adds it up in float64",
            one_pass,
            ops=("sum",),
        ),
        graph_pass(
            "narrow-products",
            "a product of few columns would leave lanes idle: it is transposed",
            transpose_narrow,
            ops=("matmul",),
        ),
        Pass(
            "lower",
            "values become buffers, ops become kernels",
            partial(lower, target=Preferences()),
        ),
        kernel_pass(
            "collapse",
            "fewer axes make tighter loops, and more loops alike",
            lambda kernels: [collapse(one) for one in kernels],
        ),
        kernel_pass(
            "fuse", "loops that share data read it once", partial(fuse, for_gpu=True)
        ),
    )
)


def build(program: Program, after: str | None = None) -> Any:
    """Return the plan of a program, or the stage after the pass of this name."""
    return PIPELINE.run(program, after)
