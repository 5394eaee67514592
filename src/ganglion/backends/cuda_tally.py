"""Sums by columns that a product's blocks take of what they have just computed.

Statistics of a batch, and the sums that their gradient needs, are sums over all rows of
a convolution's result. Its blocks have the elements in registers: each adds up its own,
and the last block to come adds up what the blocks have, in their order.
"""

from __future__ import annotations

import numpy as np

from ganglion.backends import cuda_math
from ganglion.backends.cuda_expr import Places, evaluate
from ganglion.backends.cuda_loop import host_guests, lanes_of
from ganglion.backends.cuda_same import written
from ganglion.backends.cuda_text import THREADS, Body, c_type, computed, root
from ganglion.backends.cuda_work import Root, Work
from ganglion.plan.kernel import Apply, Expr, Loop

F64 = np.dtype("float64")

TALLY = """\
// ---- sums by columns ---------------------------------------------------------------

// What a thread has seen of a column, around the first of it: so float32 is enough to
// add up squares, too.
struct Spread {
  float first, sum, squares;
  int count;
  METHOD void add(float x) {
    if (count++ == 0) first = x;
    const float away = x - first;
    sum += away;
    squares += away * away;
  }
  METHOD double total() const { return sum + (double)count * first; }
  METHOD double squared() const {
    return squares + first * (2.0 * sum + (double)count * first);
  }
};

// Threads that are ACROSS apart have KINDS sums of the same LANES columns. The last of
// ROWS blocks with these columns finds their totals in shared memory, others nothing.
template <int ROWS, int ACROSS, int KINDS, int LANES, class T>
DEVICE const double* add_columns(const T (&mine)[KINDS][LANES], T* parts,
                                 unsigned* counter, int row) {
  constexpr int COLUMNS = ACROSS * LANES, WIDTH = KINDS * COLUMNS;
  constexpr int GROUPS = THREADS / ACROSS;
  const int x = THREAD % ACROSS, g = THREAD / ACROSS;
  T* sums = (T*)shared_bytes;
  BARRIER;
#pragma unroll
  for (int k = 0; k < KINDS; k++)
    store_lanes(sums + g * WIDTH + k * COLUMNS + x * LANES, mine[k]);
  BARRIER;
  for (int c = THREAD; c < WIDTH; c += THREADS) {
    double total = 0;
#pragma unroll 8
    for (int other = 0; other < GROUPS; other++) total += sums[other * WIDTH + c];
    parts[row * WIDTH + c] = (T)total;
  }
  if (!am_last(counter, ROWS)) return 0;
  constexpr int V = 16 / (int)sizeof(T), NEAR = WIDTH / V, SHARES = THREADS / NEAR;
  static_assert(THREADS % ACROSS == 0 && THREADS % NEAR == 0, "whole lines");
  const int near = THREAD % NEAR * V, share = THREAD / NEAR;
  double total[V] = {};
#pragma unroll 8
  for (int r = share; r < ROWS; r += SHARES) {
    T part[V];
    load_lanes(part, (const T*)parts + r * WIDTH + near);
#pragma unroll
    for (int v = 0; v < V; v++) total[v] += part[v];
  }
  double* totals = (double*)shared_bytes;
#pragma unroll
  for (int v = 0; v < V; v++) totals[share * WIDTH + near + v] = total[v];
  BARRIER;
  double* whole = totals + SHARES * WIDTH;
  for (int c = THREAD; c < WIDTH; c += THREADS) {
    double sum = 0;
#pragma unroll 8
    for (int other = 0; other < SHARES; other++) sum += totals[other * WIDTH + c];
    whole[c] = sum;
  }
  BARRIER;
  return whole;
}
"""


class Tally:
    """The text of one tally, in three places of its host's."""

    def __init__(self, body: Body, work: Work, lanes: int) -> None:
        assert isinstance(work.kernel, Loop)
        self.body, self.work, self.kernel, self.lanes = body, work, work.kernel, lanes
        exprs = [expr for expr, _ in self.kernel.stored]
        self.kind = c_type(np.result_type(*(expr.dtype for expr in exprs)))
        self.spread = _spread_of(exprs)
        self.name = body.fresh("tally")
        body.do(f"{self.kind} {self.name}[{len(exprs)}][{lanes}] = {{}};")
        if self.spread is not None:
            body.do(f"Spread {self.name}_spread[{lanes}] = {{}};")

    def add(self, flat: str, held: dict[Root, str], later: list[str]) -> None:
        """Append what is added up of some neighbours; the adding goes `later`."""
        body, kernel, lanes = self.body, self.kernel, self.lanes
        rows, columns = kernel.shape[1:], kernel.outer[0]
        *inner, column = body.places(flat, (*rows, columns), "t")
        at = [column, *inner]
        exprs = [expr for expr, _ in kernel.stored]
        if self.spread is not None:
            exprs = [self.spread]
        if lanes > 1:
            values = lanes_of(body, exprs, at, lanes, held, axis=0)
            values = [f"{one}[lane]" for one in values]
        else:
            values = evaluate(body, exprs, Places(at, held))
        with body.into(later):
            body.lines.append("#pragma unroll")
            with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
                for number, value in enumerate(values):
                    if self.spread is not None:
                        body.do(f"{self.name}_spread[lane].add({value});")
                    else:
                        body.do(f"{self.name}[{number}][lane] += {value};")

    def finish(self, across: int, row: str, rows: int, group: str, groups: int) -> int:
        """Append what comes after the last element; return the shared memory of it.

        A block has the columns of a `group`, and `across` threads beside each other for
        them; it is number `row` of as many as `rows` that have the same.
        """
        body, lanes, kinds = self.body, self.lanes, len(self.kernel.stored)
        if self.spread is not None:
            body.lines.append("#pragma unroll")
            with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
                for number, what in enumerate(("total", "squared")):
                    value = f"{self.name}_spread[lane].{what}()"
                    body.do(f"{self.name}[{number}][lane] = {value};")
        columns = across * lanes
        dtype = {"float": "float32", "double": "float64"}[self.kind]
        parts = body.scratch(groups * rows * kinds * columns, dtype)
        counters = body.scratch(groups, "uint32")
        whole = body.let(
            "double*",
            f"add_columns<{rows}, {across}>({self.name}, "
            f"{parts} + ({group}) * {rows * kinds * columns}, "
            f"{counters} + ({group}), {row})",
            "whole",
        )
        head = f"for (int c = THREAD; {whole} && c < {columns}; c += THREADS)"
        with body.block(head):
            body.do(f"const int i = ({group}) * {columns} + c;")
            with body.block(f"if (i < {self.kernel.outer[0]})"):
                self._end(whole, columns)
        size = np.dtype(dtype).itemsize
        joined = 8 * (THREADS * 16 // size + kinds * columns)
        return max(THREADS * lanes * kinds * size, joined)

    def _end(self, whole: str, columns: int) -> None:
        """Append what becomes of the totals of a column."""
        body, held = self.body, {}
        for number, (_, view) in enumerate(self.kernel.stored):
            dtype = computed(view.buffer.dtype)
            total = f"{whole}[{number * columns} + c]"
            value = body.let(c_type(dtype), cuda_math.cast(total, F64, dtype), "out")
            held[root(view.buffer)] = value
            if root(view.buffer) not in self.work.dropped:
                body.do(f"{body.element(view, ['i'])} = {value};")
        host_guests(body, self.work, "i", 1, held)


def _spread_of(exprs: list[Expr]) -> Expr | None:
    """Return x where sums of x and of x times x are wanted in float64."""
    if len(exprs) != 2:
        return None
    wide, square = exprs
    if not isinstance(square, Apply) or square.op != "multiply":
        return None
    source = _narrow(wide)
    if source is None or any(written(one) != written(wide) for one in square.args):
        return None
    return source


def _narrow(expr: Expr) -> Expr | None:
    """Return the float32 expression that is cast to float64."""
    if not isinstance(expr, Apply) or expr.op != "cast" or expr.dtype != F64:
        return None
    (source, *_) = expr.args
    return source if source.dtype == np.float32 else None
