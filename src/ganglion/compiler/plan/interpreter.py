"""A plan run in NumPy: tells a bug of the planner from one of code generation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan import winograd_meaning
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Places,
    PoolBack,
    Scan,
    Scatter,
    Shape,
    Shuffled,
    Uniform,
    View,
    walk,
)
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.sparsity import NonzeroBits, Nonzeros


class PlanInterpreter:
    """Runs a plan kernel by kernel, in the arena, if the plan has one."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._arena = np.zeros(plan.arena, np.uint8)
        every = {one.root for kernel in plan.kernels for one in kernel.writes()}
        self._apart = {
            one: np.zeros(one.size, one.dtype)
            for one in every
            if one.kind == "arena" and one not in plan.offsets
        }

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
    ) -> dict[str, np.ndarray]:
        """Advance the state in place; return the results of every step."""
        results: dict[str, list[np.ndarray]] = {name: [] for name in self.plan.results}
        for _ in range(steps):
            # What is dead is poisoned, so that reading it shows.
            self._arena[:] = 0xFF
            memory = {n: np.ascontiguousarray(a) for n, a in data.items()}
            memory |= {n: np.array(a) for n, a in state.items()}
            made = {
                name: np.empty(one.shape, one.dtype)
                for name, one in self.plan.results.items()
            }
            with np.errstate(all="ignore"):
                for kernel in self.plan.kernels:
                    self._kernel(kernel, memory | made)
            for name, array in state.items():
                array[...] = memory[name]
            for name, array in made.items():
                results[name].append(array)
        return {name: np.stack(parts) for name, parts in results.items()}

    def _flat(self, buffer: Buffer, memory: Mapping[str, np.ndarray]) -> np.ndarray:
        if buffer.kind == "constant":
            assert buffer.array is not None
            return buffer.array.reshape(-1)
        if buffer.kind != "arena":
            return memory[buffer.name].reshape(-1)
        if buffer.root not in self.plan.offsets:  # not yet placed
            return self._apart[buffer.root]
        start = self.plan.offsets[buffer.root]
        raw = self._arena[start : start + buffer.nbytes]
        return raw.view(buffer.dtype)

    def _see(
        self, view: View, shape: Shape, memory: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        flat = self._flat(view.buffer, memory)
        steps = tuple(s * flat.itemsize for s in view.strides)
        return as_strided(flat[view.offset :], shape, steps)

    def _kernel(self, kernel: Kernel, memory: Mapping[str, np.ndarray]) -> None:
        if isinstance(kernel, Loop):
            self._loop(kernel, memory)
        elif isinstance(kernel, Contract):
            self._contract(kernel, memory)
        elif isinstance(kernel, Scan):
            source = self._see(kernel.source, kernel.shape, memory)
            target = self._see(kernel.target, kernel.shape, memory)
            target[...] = np.cumsum(source, axis=-1, dtype=source.dtype)
        elif isinstance(kernel, Scatter):
            rows = self._flat(kernel.updates, memory).reshape(kernel.count, -1)
            target = self._flat(kernel.target, memory).reshape(-1, kernel.row)
            index = self._flat(kernel.index, memory).reshape(-1)
            exists = (index >= 0) & (index < len(target))
            np.add.at(target, index[exists], rows[exists])
        elif isinstance(kernel, PoolBack):
            self._pool_back(kernel, memory)
        elif isinstance(kernel, Nonzeros):
            self._nonzeros(kernel, memory)
        elif isinstance(kernel, NonzeroBits):
            parts = self._flat(kernel.source, memory).reshape(kernel.parallel, -1)
            found = np.packbits(parts != 0, axis=-1, bitorder="little")
            self._flat(kernel.target, memory)[:] = found.reshape(-1)
        else:
            see = partial(self._see, memory=memory)
            winograd_meaning.interpret(kernel, see)

    def _loop(self, kernel: Loop, memory: Mapping[str, np.ndarray]) -> None:
        exprs = kernel.exprs
        values = self._evaluate(exprs, kernel.shape, memory)
        for value, (_, view) in zip(values, kernel.outputs, strict=True):
            self._store(kernel, value, view, memory)

    def _store(
        self,
        kernel: Loop,
        value: np.ndarray,
        view: View,
        memory: Mapping[str, np.ndarray],
    ) -> None:
        axes = tuple(range(len(kernel.outer), len(kernel.shape)))
        if kernel.how == "argmax":
            value = np.argmax(value, axis=-1)
        elif kernel.how == "max":
            value = np.max(value, axis=axes)
        elif kernel.how == "sum":
            wide = np.float64 if value.dtype.kind == "f" else value.dtype
            value = np.asarray(np.sum(value, axis=axes, dtype=wide))
        target = self._see(view, kernel.outer, memory)
        if not kernel.adds:
            target[...] = value
            return
        for place in itertools.product(*(range(n) for n in kernel.shape[:-1])):
            target[place] += value[place]

    def _evaluate(
        self, exprs: list[Expr], shape: Shape, memory: Mapping[str, np.ndarray]
    ) -> list[np.ndarray]:
        known: dict[int, np.ndarray] = {}
        for one in walk(*exprs):
            known[id(one)] = np.broadcast_to(
                self._one(one, shape, memory, known), shape
            )
        return [known[id(expr)] for expr in exprs]

    def _one(
        self,
        expr: Expr,
        shape: Shape,
        memory: Mapping[str, np.ndarray],
        known: dict[int, np.ndarray],
    ) -> np.ndarray:
        if isinstance(expr, Load):
            return np.array(self._see(expr.view, shape, memory))
        if isinstance(expr, Literal):
            return np.array(expr.value, expr.dtype)
        if isinstance(expr, Index):
            return _index(expr, shape).astype(expr.dtype)
        if isinstance(expr, Apply):
            arguments = [known[id(arg)] for arg in expr.args]
            if expr.op == "cast":
                return arguments[0].astype(expr.dtype)
            return np.asarray(OPS[expr.op].meaning(*arguments))
        if isinstance(expr, Indirect):
            within = _index(Index(expr.dtype, expr.within, expr.offset), shape)
            flat = self._flat(expr.table, memory)
            row = known[id(expr.row)].astype(np.int64)
            exists = (row >= 0) & (row < expr.rows)
            found = flat[np.where(exists, row, 0) * expr.row_size + within]
            return np.where(exists, found, np.nan) if expr.dtype.kind == "f" else found
        state = self._flat(expr.state, memory)  # type: ignore[attr-defined]
        if isinstance(expr, Uniform):
            numbers = known[id(expr.element)]
            count = int(numbers.max()) + 1
            drawn = OPS["random_uniform"].meaning(state, (count,), expr.dtype.name)
            return drawn[numbers]
        assert isinstance(expr, Shuffled)
        return OPS["shuffle"].meaning(state, known[id(expr.position)], expr.rows)

    def _contract(self, kernel: Contract, memory: Mapping[str, np.ndarray]) -> None:
        groups = (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        sizes = [tuple(axis.size for axis in group) for group in groups]
        every = tuple(axis for group in groups for axis in group)
        kept = tuple(axis for group in groups[:3] for axis in group)
        shape = tuple(axis.size for axis in every)

        def operand(view: View, side: str) -> np.ndarray:
            strides = tuple(getattr(axis, side) for axis in every)
            # Axes an operand does not have are kept at size one.
            own = tuple(n if s else 1 for n, s in zip(shape, strides, strict=True))
            return self._see(View(view.buffer, strides, view.offset), own, memory)

        letters = "abcdefghijklmnopqrstuvwxyz"[: len(every)]
        left, right = operand(kernel.left, "left"), operand(kernel.right, "right")
        if kernel.places:
            left = np.where(self._listed(kernel, kernel.places, memory), left, 0)
        if kernel.bits:
            bits = np.unpackbits(self._flat(kernel.bits, memory), bitorder="little")
            steps = tuple(axis.left for axis in every)
            found = as_strided(bits[kernel.left.offset :], left.shape, steps)
            left = np.where(found, left, 0)
        used = [
            "".join(x for x, n in zip(letters, one.shape, strict=True) if n > 1)
            for one in (left, right)
        ]
        out_letters = letters[: len(kept)]
        free = "".join(x for x in out_letters if x not in used[0] + used[1])
        product = np.einsum(
            f"{used[0]},{used[1]}->{''.join(x for x in out_letters if x not in free)}",
            left.squeeze(),
            right.squeeze(),
            optimize=True,
        )
        kept_sizes = tuple(n for group in sizes[:3] for n in group)
        ones = tuple(
            1 if x in free else n for x, n in zip(out_letters, kept_sizes, strict=True)
        )
        target = View(
            kernel.out.buffer, tuple(axis.out for axis in kept), kernel.out.offset
        )
        self._see(target, kept_sizes, memory)[...] = product.reshape(ones)

    def _nonzeros(self, kernel: Nonzeros, memory: Mapping[str, np.ndarray]) -> None:
        axes = (*kernel.batch, kernel.rows, kernel.inner)
        view = View(kernel.source.buffer, tuple(a.left for a in axes))
        view = replace(view, offset=kernel.source.offset)
        source = self._see(view, tuple(a.size for a in axes), memory)
        lists = self._flat(kernel.places.buffer, memory)
        lists = lists.reshape(-1, kernel.groups, kernel.places.buffer.shape[-1])
        starts = range(0, kernel.rows.size, kernel.places.group)
        for piece, rows in enumerate(source.reshape(-1, *source.shape[-2:])):
            for group, start in enumerate(starts):
                some = rows[start : start + kernel.places.group]
                (found,) = np.nonzero((some != 0).any(axis=0))
                lists[piece, group, 0] = len(found)
                lists[piece, group, Places.HEAD :][: len(found)] = found

    def _listed(
        self, kernel: Contract, places: Places, memory: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        """Return which elements of the left operand are at places of the lists."""
        (rows,), (inner,) = kernel.rows, kernel.inner
        lists = self._flat(places.buffer, memory)
        *batch, groups, length = places.buffer.shape
        found = np.zeros((math.prod(batch) * groups, inner.size), bool)
        for row, (count, *others) in zip(found, lists.reshape(-1, length), strict=True):
            row[others[Places.HEAD - 1 :][:count]] = True
        found = np.repeat(found.reshape(*batch, groups, -1), places.group, axis=-2)
        found = found[..., : rows.size, :]
        return found.reshape(*batch, rows.size, *(1 for _ in kernel.columns), -1)

    def _pool_back(self, kernel: PoolBack, memory: Mapping[str, np.ndarray]) -> None:
        dy = self._see(kernel.dy, kernel.shape, memory)
        elements = self._evaluate(list(kernel.elements), kernel.shape, memory)
        largest = np.max(elements, axis=0)
        if kernel.largest:
            largest = self._see(kernel.largest, kernel.shape, memory)
        if kernel.above is not None:
            dy = np.where(largest > kernel.above, dy, 0)
        waiting = np.ones(kernel.shape, bool)
        for tap, x in zip(kernel.taps, elements, strict=True):
            to_view = View(kernel.dx.buffer, kernel.dx.strides, kernel.dx.offset + tap)
            wins = waiting & (x == largest)
            target = self._see(to_view, kernel.shape, memory)
            if kernel.covers:
                target[...] = 0
            for place in itertools.product(*(range(n) for n in kernel.shape[:-1])):
                target[place] += np.where(wins[place], dy[place], 0)
            waiting &= ~wins


def _index(expr: Index, shape: Shape) -> np.ndarray:
    total = np.full(shape, expr.offset, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, expr.strides, strict=True)):
        steps = np.arange(size, dtype=np.int64) * stride
        total += steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return total
