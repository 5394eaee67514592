"""A plan as text: one line a kernel, with what it reads, computes and writes."""

from __future__ import annotations

from ganglion.plan.kernel import (
    Apply,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Plan,
    Shuffled,
    Uniform,
    View,
)
from ganglion.plan.winograd import Tiled
from ganglion.plan.zeros import NonzeroBits, Nonzeros


def show(plan: Plan) -> str:
    """Return the text of a plan."""
    lines = [
        f"plan {plan.name}  {len(plan.kernels)} kernels, arena {plan.arena:,} bytes"
    ]
    sides = _sides(plan)
    for number, kernel in enumerate(plan.kernels):
        lines.append(f"  {number:3} {sides[number]}{_kernel(kernel)}")
        if plan.marks:
            mark = plan.marks[number]
            lines[-1] += "  [one thread]" * mark.alone + "  | all wait" * mark.barrier
    return "\n".join(lines)


def _sides(plan: Plan) -> list[str]:
    """Return the line that joins the kernels of a band."""
    sides = [""] * len(plan.kernels)
    for band in plan.bands:
        count = band.last - band.first
        sides[band.first : band.last] = ["┌ ", *["│ "] * (count - 2), "└ "]
    return sides


def _kernel(kernel: Kernel) -> str:
    if isinstance(kernel, Loop):
        sign = "+=" if kernel.adds else "="
        how = ""
        if kernel.reduced:
            how = f"{kernel.how}{list(kernel.shape[-kernel.reduced :])} "
        bodies = [f"{_view(v)} {sign} {how}{_expr(e)}" for e, v in kernel.stored]
        return f"for {list(kernel.outer)}: " + "\n      and: ".join(bodies)
    if isinstance(kernel, Contract):
        sizes = [
            "×".join(str(axis.size) for axis in axes) or "1"
            for axes in (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        ]
        text = "for batch {}, rows {}, columns {}, inner {}: ".format(*sizes)
        out, left, right = kernel.out.buffer, kernel.left.buffer, kernel.right.buffer
        lists = kernel.places.buffer if kernel.places else kernel.bits
        where = f"  at {lists.name}" if lists else ""
        return f"{kernel.name} {text}{out!r} = {left!r} · {right!r}{where}"
    if isinstance(kernel, Nonzeros):
        groups = f"{kernel.parallel} groups of {kernel.places.group}"
        lists, source = kernel.places.buffer, kernel.source.buffer
        text = f"for {groups}, inner {kernel.inner.size}: {lists!r}"
        return f"{text} = where {source!r} is not zero"
    if isinstance(kernel, NonzeroBits):
        bits, source = kernel.target, kernel.source
        return f"for {source.size} elements: {bits!r} = where {source!r} is not zero"
    reads = ", ".join(repr(one) for one in kernel.reads())
    writes = ", ".join(repr(one) for one in kernel.writes())
    cut = f" for {kernel.tiling}" if isinstance(kernel, Tiled) else ""
    return f"{kernel.name}{cut}: {writes} from {reads}"


def _view(view: View) -> str:
    place = f"@{list(view.strides)}" + (f"+{view.offset}" if view.offset else "")
    return f"{view.buffer.name}{place}"


def _expr(expr: Expr) -> str:
    if isinstance(expr, Load):
        return _view(expr.view)
    if isinstance(expr, Literal):
        return f"{expr.value:g}"
    if isinstance(expr, Index):
        return f"place{list(expr.strides)}"
    if isinstance(expr, Apply):
        return f"{expr.op}({', '.join(_expr(one) for one in expr.args)})"
    if isinstance(expr, Indirect):
        return f"{expr.table.name}[{_expr(expr.row)}]"
    if isinstance(expr, Uniform):
        return f"uniform({expr.state.name})"
    if isinstance(expr, Shuffled):
        return f"shuffled({expr.state.name}, {_expr(expr.position)})"
    return type(expr).__name__
