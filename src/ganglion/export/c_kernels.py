"""The kernels of a plan as C functions: plain loops that any compiler makes fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ganglion.compiler.cuda.text import affine
from ganglion.compiler.plan.kernels import Axis, Contract, Kernel, Loop
from ganglion.compiler.plan.scan_scatter import Scan, Scatter
from ganglion.export.c_text import CFunction, UnsupportedError, c_type

ROWS, COLUMNS = 4, 16  # of a product, that are added up in registers
LONG_SUM = 256  # elements from which on float32 is added up in double


def emit_kernel(kernel: Kernel, restrict: bool = True) -> CFunction:
    """Return the function of a kernel that needs no other."""
    emit = _EMITTERS.get(type(kernel))
    if emit is None:
        raise UnsupportedError(
            f"C99 cannot hold {kernel.name} ({type(kernel).__name__})."
        )
    function = CFunction(restrict)
    emit(function, kernel)
    return function


# ---- loops ---------------------------------------------------------------------------


def _loop(function: CFunction, kernel: Loop) -> None:
    with function.nest(kernel.outer) as outer:
        if kernel.reduced:
            values = _reduced(function, kernel, outer)
        else:
            values = function.evaluate(kernel.exprs, outer)
        for value, (_, view) in zip(values, kernel.outputs, strict=True):
            target = function.element(view, outer, is_written=True)
            function.do(f"{target} {'+=' if kernel.adds else '='} {value};")


def _reduced(function: CFunction, kernel: Loop, outer: list[str]) -> list[str]:
    sizes = kernel.shape[len(kernel.outer) :]
    totals = [_start(function, kernel, math.prod(sizes), n)
              for n in range(len(kernel.outputs))]  # fmt: skip
    with function.nest(sizes) as inner:
        values = function.evaluate(kernel.exprs, [*outer, *inner])
        for total, value in zip(totals, values, strict=True):
            if kernel.how == "sum":
                function.do(f"{total} += {value};")
            elif kernel.how == "max":
                _larger(function, total, value)
            else:
                with function.block(f"if ({value} > {total}_top || {inner[0]} == 0)"):
                    function.do(f"{total}_top = {value};")
                    function.do(f"{total} = {inner[0]};")
    return totals


def _start(function: CFunction, kernel: Loop, count: int, number: int) -> str:
    """Append the variable that something is reduced in."""
    expr, view = kernel.outputs[number]
    kind, total = c_type(expr.dtype), function.fresh("total")
    if kernel.how == "argmax":
        function.do(f"{kind} {total}_top = 0;")
        function.do(f"{c_type(view.buffer.dtype)} {total} = 0;")
        return total
    if kernel.how == "max":
        is_float = expr.dtype.kind == "f"
        start = "-INFINITY" if is_float else _smallest(expr.dtype.name)
    else:
        kind = "double" if kind == "float" and count >= LONG_SUM else kind
        start = "0"
    function.do(f"{kind} {total} = {start};")
    return total


def _smallest(name: str) -> str:
    unsigned = name.startswith("u") or name == "bool"
    return "0" if unsigned else f"{name.upper()}_MIN"


def _larger(function: CFunction, total: str, value: str) -> None:
    # NaN stays.
    with function.block(f"if ({value} > {total} || {value} != {value})"):
        function.do(f"{total} = {value};")


# ---- products ------------------------------------------------------------------------


class _Product:
    """out[b, m, n] = sum of left[b, m, k] * right[b, k, n], in tiles of registers."""

    def __init__(self, function: CFunction, kernel: Contract) -> None:
        self.f, self.kernel = function, kernel
        self.kind = c_type(kernel.out.buffer.dtype)
        self.right = c_type(kernel.right.buffer.dtype)  # int8 where those are whole
        *self.outer_columns, self.columns = kernel.columns or (Axis(1),)
        *self.outer_rows, self.rows = kernel.rows or (Axis(1),)

    def emit(self) -> None:
        outer = (*self.kernel.batch, *self.outer_rows, *self.outer_columns)
        with self.f.nest([axis.size for axis in outer]) as indices:
            self.bases = {
                side: affine(
                    indices,
                    [getattr(axis, side) for axis in outer],
                    getattr(self.kernel, side).offset,
                )
                for side in ("left", "right", "out")
            }
            rows, columns = self.rows.size, self.columns.size
            whole_rows, whole_columns = rows - rows % ROWS, columns - columns % COLUMNS
            if not whole_rows or not whole_columns:
                self._by_rows(0, rows, 0, columns)
                return
            self._tiles(whole_rows, whole_columns)
            if whole_columns < columns:
                self._by_rows(0, whole_rows, whole_columns, columns)
            if whole_rows < rows:
                self._by_rows(whole_rows, rows, 0, columns)

    def _at(self, side: str, *terms: tuple[str, int]) -> str:
        """Return an address within an operand, or the output."""
        view = getattr(self.kernel, side)
        pointer = self.f.pointer(view.buffer, is_written=side == "out")
        offset = affine([t[0] for t in terms], [t[1] for t in terms])
        base = self.bases[side]
        both = [part for part in (base, offset) if part != "0"]
        return f"{pointer} + {' + '.join(both) or '0'}"

    def _inner(self, indices: Sequence[str], side: str) -> list[tuple[str, int]]:
        inner = self.kernel.inner
        return [(index, getattr(axis, side))
                for index, axis in zip(indices, inner, strict=True)]  # fmt: skip

    def _tiles(self, rows: int, columns: int) -> None:
        f, kind = self.f, self.kind
        n0, m0, n = f.fresh("n"), f.fresh("m"), f.fresh("n")
        each = f"for (int {n} = 0; {n} < {COLUMNS}; {n}++)"
        with (
            f.block(f"for (int {n0} = 0; {n0} < {columns}; {n0} += {COLUMNS})"),
            f.block(f"for (int {m0} = 0; {m0} < {rows}; {m0} += {ROWS})"),
        ):
            sums = [f.fresh("s") for _ in range(ROWS)]
            f.do(f"{kind} {', '.join(f'{s}[{COLUMNS}] = {{0}}' for s in sums)};")
            with f.nest([axis.size for axis in self.kernel.inner]) as k:
                left = self._at("left", (m0, self.rows.left), *self._inner(k, "left"))
                a = f.let(f"{kind} *", left, "a")
                right = self._at("right", *self._inner(k, "right"),
                                 (n0, self.columns.right))  # fmt: skip
                r = f.let(f"{self.right} *", right, "r")
                xs = [f.let(kind, f"{a}[{row * self.rows.left}]", "x")
                      for row in range(ROWS)]  # fmt: skip
                with f.block(each):
                    y = f.let(kind, f"{r}[{_times(n, self.columns.right)}]", "y")
                    for s, x in zip(sums, xs, strict=True):
                        f.do(f"{s}[{n}] += {x} * {y};")
            out = self._at("out", (m0, self.rows.out), (n0, self.columns.out))
            o = f.fresh("o")
            f.do(f"{kind} *const {o} = {out};")
            with f.block(each):
                for row, s in enumerate(sums):
                    at = affine([n], [self.columns.out], row * self.rows.out)
                    f.do(f"{o}[{at}] = {s}[{n}];")

    def _by_rows(self, row: int, rows: int, column: int, columns: int) -> None:
        """Add to a row of the output, one inner index after the other."""
        f, kind = self.f, self.kind
        m, n, o = f.fresh("m"), f.fresh("n"), f.fresh("o")
        each = f"for (int {n} = {column}; {n} < {columns}; {n}++)"
        with f.block(f"for (int {m} = {row}; {m} < {rows}; {m}++)"):
            f.do(f"{kind} *const {o} = {self._at('out', (m, self.rows.out))};")
            target = f"{o}[{_times(n, self.columns.out)}]"
            f.do(f"{each} {target} = 0;")
            with f.nest([axis.size for axis in self.kernel.inner]) as k:
                left = self._at("left", (m, self.rows.left), *self._inner(k, "left"))
                x = f.let(kind, f"*({left})", "x")
                at = self._at("right", *self._inner(k, "right"))
                right = f.let(f"{self.right} *", at)
                value = f"{right}[{_times(n, self.columns.right)}]"
                # Images and outputs of ReLU are mostly zeros.
                f.do(f"if ({x} != 0) {each} {target} += {x} * {value};")


def _times(index: str, stride: int) -> str:
    return affine([index], [stride])


# ---- running sums, rows that are added -----------------------------------------------


def _scan(function: CFunction, kernel: Scan) -> None:
    *outer, length = kernel.shape
    kind = c_type(kernel.target.buffer.dtype)
    with function.nest(outer) as indices:
        total = function.fresh("total")
        function.do(f"{kind} {total} = 0;")
        with function.nest([length]) as last:
            at = [*indices, *last]
            function.do(f"{total} += {function.element(kernel.source, at)};")
            target = function.element(kernel.target, at, is_written=True)
            function.do(f"{target} = {total};")


def _scatter(function: CFunction, kernel: Scatter) -> None:
    index, updates = map(function.pointer, (kernel.index, kernel.updates))
    target = function.pointer(kernel.target, is_written=True)
    rows = kernel.target.size // kernel.row
    with function.block(f"for (int i = 0; i < {kernel.count}; i++)"):
        inside = f"{index}[i] >= 0 && {index}[i] < {rows}"
        each = f"for (int j = 0; j < {kernel.row}; j++)"
        at, source = f"(int){index}[i] * {kernel.row} + j", f"i * {kernel.row} + j"
        function.do(f"if ({inside}) {each} {target}[{at}] += {updates}[{source}];")


_EMITTERS: dict[type[Kernel], Callable[[CFunction, Any], None]] = {
    Loop: _loop,
    Contract: lambda function, kernel: _Product(function, kernel).emit(),
    Scan: _scan,
    Scatter: _scatter,
}
