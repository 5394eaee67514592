"""Sums by columns that a kernel's blocks take of what they have just computed.

Statistics of a batch, and the sums that their gradient needs, are sums over all rows of
a convolution's result. Its blocks have the elements in registers: each adds up its own,
and the last block to come adds up what the blocks have, in their order. Where nobody
waits for them, a block only stores its sums, for another launch to add up.
"""

from __future__ import annotations

import math

import numpy as np

from ganglion.compiler.cuda import pointwise
from ganglion.compiler.cuda.elementwise import (
    compute_and_store,
    host_guests,
    lanes_of,
    most_lanes,
)
from ganglion.compiler.cuda.epilogue import Root, Work, lanes_allowed
from ganglion.compiler.cuda.expressions import Places, evaluate
from ganglion.compiler.cuda.passes.cse import written
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    c_type,
    computed,
    is_wide,
    root,
)
from ganglion.compiler.plan.kernels import Apply, Expr, Loop

F64 = np.dtype("float64")
MOST_ROWS, GROUP = 288, 32  # blocks that are added up at once; else so many of them

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

// Adds up a column of COUNT rows in shared memory, four sums at a time.
template <int COUNT, int WIDTH, class T> DEVICE double add_column(const T* first) {
  double sums[4] = {};
#pragma unroll
  for (int r = 0; r < COUNT; r++) sums[r % 4] += first[r * WIDTH];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Threads that are ACROSS apart have KINDS sums of the same LANES columns: stores the
// totals of each kind, a kind after the other.
template <int ACROSS, int COLUMNS, int KINDS, int LANES, class T, class To>
DEVICE void fold_threads(const T (&mine)[KINDS][LANES], To* to) {
  constexpr int EACH = ACROSS * LANES, WIDTH = KINDS * EACH;
  T* sums = (T*)shared_bytes;
  T* here = sums + THREAD / ACROSS * WIDTH + THREAD % ACROSS * LANES;
  BARRIER;
  if (THREAD < THREADS / ACROSS * ACROSS) {
#pragma unroll
    for (int k = 0; k < KINDS; k++) store_lanes(here + k * EACH, mine[k]);
  }
  BARRIER;
  for (int c = THREAD; c < WIDTH; c += THREADS)
    if (c % EACH < COLUMNS)
      to[c / EACH * COLUMNS + c % EACH] =
          (T)add_column<THREADS / ACROSS, WIDTH>((const T*)sums + c);
}

// Adds up rows of parts; all threads find the totals in shared memory.
template <int MOST, int WIDTH, class T>
DEVICE const double* add_rows(const T* parts, int rows) {
  constexpr int V = 16 / (int)sizeof(T), NEAR = WIDTH / V, SHARES = THREADS / NEAR;
  static_assert(WIDTH % V == 0, "whole lines");
  const int near = THREAD % NEAR * V, share = THREAD / NEAR;
  double total[V] = {};
#pragma unroll
  for (int u = 0; u < (MOST + SHARES - 1) / SHARES; u++) {
    const int r = share + u * SHARES;
    T part[V] = {};
    if (r < rows && share < SHARES) load_lanes(part, parts + r * WIDTH + near);
#pragma unroll
    for (int v = 0; v < V; v++) total[v] += part[v];
  }
  double* totals = (double*)shared_bytes;
  if (share < SHARES) {
#pragma unroll
    for (int v = 0; v < V; v++) totals[share * WIDTH + near + v] = total[v];
  }
  BARRIER;
  double* whole = totals + SHARES * WIDTH;
  for (int c = THREAD; c < WIDTH; c += THREADS) {
    whole[c] = add_column<SHARES, WIDTH>((const double*)totals + c);
  }
  BARRIER;
  return whole;
}

// As above, with KINDS sums of each column, over the rows of many blocks. The last of
// ROWS blocks with these columns finds their totals in shared memory, others nothing.
// Many blocks are added up in groups of GROUP first, while others are still at work.
template <int ROWS, int GROUP, int ACROSS, int KINDS, int LANES, class T>
DEVICE const double* add_columns(const T (&mine)[KINDS][LANES], T* parts,
                                 unsigned* counters, int row) {
  constexpr int COLUMNS = ACROSS * LANES, WIDTH = KINDS * COLUMNS;
  fold_threads<ACROSS, COLUMNS>(mine, parts + row * WIDTH);
  constexpr int GROUPS = (ROWS + GROUP - 1) / GROUP;
  const int group = row / GROUP, left = ROWS - group * GROUP;
  const int count = left < GROUP ? left : GROUP;
  if (!am_last(counters + group, count)) return 0;
  const double* some = add_rows<GROUP, WIDTH>((const T*)parts + group * GROUP * WIDTH,
                                              count);
  if constexpr (GROUPS == 1) return some;
  T* groups = parts + ROWS * WIDTH;
  for (int c = THREAD; c < WIDTH; c += THREADS) groups[group * WIDTH + c] = (T)some[c];
  if (!am_last(counters + GROUPS, GROUPS)) return 0;
  return add_rows<GROUPS, WIDTH>((const T*)groups, GROUPS);
}
"""


class Tally:
    """The text of one tally, in three places of its host's."""

    def __init__(self, body: Body, work: Work, lanes: int) -> None:
        assert isinstance(work.kernel, Loop)
        self.body, self.work, self.kernel, self.lanes = body, work, work.kernel, lanes
        exprs = self.kernel.exprs
        self.kind = c_type(np.result_type(*(expr.dtype for expr in exprs)))
        self.spread = _spread_of(exprs)
        self.name = body.fresh("tally")
        body.do(f"{self.kind} {self.name}[{len(exprs)}][{lanes}] = {{}};")
        if self.spread is not None:
            body.do(f"Spread {self.name}_spread[{lanes}] = {{}};")

    def add(self, flat: str, held: dict[Root, str], later: list[str]) -> None:
        """Append what is added up of some neighbours; the adding goes `later`."""
        body, kernel, lanes = self.body, self.kernel, self.lanes
        *outer, columns = kernel.outer
        inner = kernel.shape[len(kernel.outer) :]
        *places, column = body.places(flat, (*outer, *inner, columns), "t")
        at = [*places[: len(outer)], column, *places[len(outer) :]]
        exprs = kernel.exprs
        if self.spread is not None:
            exprs = [self.spread]
        if lanes > 1:
            values = lanes_of(body, exprs, at, lanes, held, len(outer))
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
        body, lanes, kinds = self.body, self.lanes, len(self.kernel.outputs)
        if self.spread is not None:
            body.lines.append("#pragma unroll")
            with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
                for number, what in enumerate(("total", "squared")):
                    value = f"{self.name}_spread[lane].{what}()"
                    body.do(f"{self.name}[{number}][lane] = {value};")
        columns = across * lanes
        dtype = {"float": "float32", "double": "float64"}[self.kind]
        size = rows if rows <= MOST_ROWS else GROUP
        many = -(-rows // size) if rows > size else 0
        width = (rows + many) * kinds * columns
        parts = body.scratch(groups * width, dtype)
        counters = body.scratch(groups * (many + 1), "uint32")
        whole = body.let(
            "double*",
            f"add_columns<{rows}, {size}, {across}>({self.name}, "
            f"{parts} + ({group}) * {width}, "
            f"{counters} + ({group}) * {many + 1}, {row})",
            "whole",
        )
        head = f"for (int c = THREAD; {whole} && c < {columns}; c += THREADS)"
        with body.block(head):
            body.do(f"const int i = ({group}) * {columns} + c;")
            with body.block(f"if (i < {self.kernel.outer[0]})"):
                self._end(whole, columns)
        itemsize = np.dtype(dtype).itemsize
        joined = 8 * (THREADS * 16 // itemsize + kinds * columns)
        return max(THREADS * lanes * kinds * itemsize, joined)

    def finish_rows(self, across: int) -> int:
        """Append how the sums of a part's rows are stored; return the shared memory."""
        (_, view), columns = self.kernel.outputs[0], self.kernel.outer[-1]
        to = f"{self.body.pointer(view.buffer)} + part * {columns}"
        self.body.do(f"fold_threads<{across}, {columns}>({self.name}, {to});")
        return THREADS * self.lanes * view.buffer.dtype.itemsize

    def _end(self, whole: str, columns: int) -> None:
        """Append what becomes of the totals of a column."""
        body, held = self.body, {}
        for number, (_, view) in enumerate(self.kernel.outputs):
            dtype = computed(view.buffer.dtype)
            total = f"{whole}[{number * columns} + c]"
            value = body.let(c_type(dtype), pointwise.cast(total, F64, dtype), "out")
            held[root(view.buffer)] = value
            if root(view.buffer) not in self.work.dropped:
                body.do(f"{body.element(view, ['i'])} = {value};")
        host_guests(body, self.work, "i", 1, held)


def across_of(columns: int, lanes: int) -> int:
    """Return how many threads beside each other have all columns of a row.

    >>> across_of(24, 4), across_of(64, 4)
    (8, 16)
    """
    across = 1
    while across * lanes < columns and across < THREADS:
        across *= 2
    return across


def emit_tallied_map(work: Work) -> Emitted:
    """Return a map as text that adds up what it computes, part by part of its rows."""
    kernel, first = work.kernel, work.tallies[0].kernel
    assert isinstance(kernel, Loop)
    assert isinstance(first, Loop)
    parts, columns = first.outer
    rows = math.prod(kernel.shape) // columns // parts
    body = Body(is_wide(work.buffers(), math.prod(kernel.shape)))
    lanes = lanes_allowed(work, math.gcd(kernel.shape[-1], columns), most_lanes(kernel))
    across = across_of(columns, lanes)
    body.do(f"const int c = THREAD % {across} * {lanes};")
    with body.block(f"for (int part = block; part < {parts}; part += blocks)"):
        tallies = [Tally(body, one, lanes) for one in work.tallies]
        body.lines.append("#pragma unroll 4")
        head = f"int r = THREAD / {across}; r < {rows} && c < {columns}"
        with body.block(f"for ({head}; r += {THREADS // across})"):
            place = f"(({body.index})part * {rows} + r) * {columns} + c"
            flat = body.let(body.index, place, "flat")
            at = body.places(flat, kernel.shape)
            later: list[str] = []
            held = compute_and_store(body, kernel.outputs, at, lanes, {}, work, later)
            host_guests(body, work, flat, lanes, held, later)
            for tally in tallies:
                tally.add(flat, held, later)
            body.lines += later
        shared = max(one.finish_rows(across) for one in tallies)
    return body.emitted(parts, shared)


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
