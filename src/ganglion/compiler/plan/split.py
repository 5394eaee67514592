"""What several lowerings need: copying into a larger array."""

from __future__ import annotations

from ganglion.compiler.ir.graph import Value
from ganglion.compiler.plan.kernels import Literal, Loop, Shape, View
from ganglion.compiler.plan.lower import Lowering, identity

Pairs = tuple[tuple[int, int], ...]


def copy_into(
    low: Lowering, x: Value, whole: View, pairs: Pairs, interior: Shape
) -> None:
    """Copy a value into a larger one, after and between what is left free."""
    if x.size == 0:
        return
    strides = tuple(s * (i + 1) for s, i in zip(whole.strides, interior, strict=True))
    offset = sum(lo * s for (lo, _), s in zip(pairs, whole.strides, strict=True))
    view = View(whole.buffer, strides, whole.offset + offset)
    low.emit(Loop.of("copy", x.shape, low.at(x, identity(x.shape)), view))


def padded_images(low: Lowering, x: Value, pairs: Pairs, interior: Shape) -> View:
    """Return images with zeros around (and between) their pixels."""
    if not any(lo or hi for lo, hi in pairs) and not any(interior):
        view = low.view(x)
        return view if view.strides[-1] == 1 else View.whole(low.store(x))
    spans = zip(x.shape[1:-1], pairs, interior, strict=True)
    spatial = tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    whole = View.whole(target)
    low.emit(Loop.of("fill", target.shape, Literal(x.dtype, 0.0), whole))
    copy_into(low, x, whole, ((0, 0), *pairs, (0, 0)), (0, *interior, 0))
    return whole
