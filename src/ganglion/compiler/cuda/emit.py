"""A plan as CUDA C: functions by name, and the launches of a step in order.

Nothing here knows a driver: the text can be read, checked and compiled anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.cuda.allocation import ALIGNMENT, place
from ganglion.compiler.cuda.column_sums import emit_tallied_map
from ganglion.compiler.cuda.elementwise import emit_map
from ganglion.compiler.cuda.epilogue import Root, Work, is_host
from ganglion.compiler.cuda.function import Function, PartitionText, RowStaging
from ganglion.compiler.cuda.gemm import emit_contract
from ganglion.compiler.cuda.launches import Haste, Lane, Launch, without, works_of
from ganglion.compiler.cuda.passes.byte_operands import in_bytes
from ganglion.compiler.cuda.passes.dependencies import (
    mark_rounded,
    mark_settled,
    written_last,
)
from ganglion.compiler.cuda.passes.depthwise import channels_apart
from ganglion.compiler.cuda.passes.operands import kept_operands
from ganglion.compiler.cuda.passes.padding import inside_pads
from ganglion.compiler.cuda.passes.prefetch import NEXT, exact_between, look_ahead
from ganglion.compiler.cuda.passes.simplify import Simplified, in_parts, simplify
from ganglion.compiler.cuda.pool_grad import emit_pool_back
from ganglion.compiler.cuda.reduce import emit_reduction
from ganglion.compiler.cuda.row_fusion import (
    as_loop,
    given_by_rows,
    near_for_rows,
    rows_of_block,
)
from ganglion.compiler.cuda.scan import emit_adds, emit_scan
from ganglion.compiler.cuda.scatter import emit_scatter
from ganglion.compiler.cuda.scheduler import schedule
from ganglion.compiler.cuda.text import STEP, Emitted, root
from ganglion.compiler.cuda.tiling import PROCESSORS, READS_AGAIN, Product, Where
from ganglion.compiler.cuda.transpose import emit_turned, turned_axes
from ganglion.compiler.cuda.wgrad_tiling import parts_for
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Loop,
    PoolBack,
    Scan,
    Scatter,
)
from ganglion.compiler.plan.memory import rounded
from ganglion.compiler.plan.plan import Plan

# Blocks that go on row by row would gather on processors that happen to be idle: each
# takes so large a part of their memory that they cannot.
SPREAD = 3
MOST_ASIDE = 64  # blocks without haste beside some that go on row by row
TENSOR_CORES = 80  # compute capability from which tf32 and bf16 exist
# Kilobytes of shared memory of a block, by compute capability.
_SHARED = {75: 64, 80: 163, 87: 163, 90: 227, 100: 227, 103: 227}


@dataclass(frozen=True)
class Target:
    """What code is made for: a compute capability and a precision of products."""

    capability: int = 90
    precision: str = "tf32"

    @property
    def shared(self) -> int:
        """The shared memory that a block may have, in bytes."""
        return _SHARED.get(self.capability, 99) * 1024

    @property
    def half(self) -> int:
        """The shared memory of each of two blocks on one processor."""
        return self.shared // 2 - 1024

    @property
    def products(self) -> str:
        """The precision that products really have: exact where tensor cores lack."""
        return self.precision if self.capability >= TENSOR_CORES else "float32"


@dataclass(frozen=True)
class Call:
    """One launch: a function by name, its size, and the memory it is given."""

    function: str
    blocks: int
    shared: int
    buffers: tuple[Buffer, ...]


@dataclass(frozen=True)
class Emission:
    """A plan as text and launches.

    Steps that prepare each other are `first`, any number of `every`, and `last`; others
    are `every` alone. What they hand over is kept twice, see `prefetch`.
    """

    functions: dict[str, str]
    once: tuple[Call, ...]
    first: tuple[Call, ...]
    every: tuple[Call, ...]
    last: tuple[Call, ...]
    handed: frozenset[str]
    offsets: dict[Root, int]  # of temporary memory
    arena: int
    own: dict[Root, int]  # of memory that nobody else may use; zero at first
    own_bytes: int
    results: dict[str, Buffer]
    keeps_cache: bool  # rather than memory for the blocks of two launches at once

    @property
    def calls(self) -> Iterator[Call]:
        """Every launch there is."""
        yield from (*self.once, *self.first, *self.every, *self.last)


@dataclass(frozen=True)
class Schedule:
    """The launches of a plan, as in an `Emission`, before they are text."""

    once: list[Launch]
    first: list[Launch]
    every: list[Launch]
    last: list[Launch]
    handed: frozenset[str]
    kept: set[Root]  # memory that is not used for anything else


def schedule_of(plan: Plan, target: Target) -> Schedule:
    """Return what is launched when."""
    simple = prepared(plan.kernels, target)
    ahead = look_ahead(steps_of(simple, target), simple.kept())
    before, ahead = exact_between(simple.once, ahead)
    for_next = ahead.early_for_next()
    once = schedule(before, drops=False)
    first = schedule((), ahead.early, drops=False)
    kept = simple.kept() | ahead.made
    every = schedule(ahead.late, for_next, kept=kept)
    if target.products == "tf32":
        mark_rounded([*once, *first, *every])
    mark_settled(every, written_last(every) | written_last(first) if first else None)
    # The last step makes what no step will read, but does not count for a next one.
    counting = [k for k in for_next if any(b.kind == "state" for b in k.writes())]
    last = without(every, counting) if first else []
    return Schedule(once, first, every, last, ahead.handed, kept)


def emit(plan: Plan, target: Target) -> Emission:
    """Return a plan as CUDA C."""
    made = schedule_of(plan, target)
    offsets, arena = place(made.every, made.kept)
    maker = _Maker(target)
    for _, work in works_of([*made.once, *made.first, *made.every]):
        maker.keep(b for b in work.buffers() if root(b) in made.kept or b.kind == NEXT)
    counting = [maker.counting()] if plan.results else []
    return Emission(
        maker.functions,
        tuple(map(maker.call, made.once)),
        tuple(map(maker.call, made.first)),
        (*map(maker.call, made.every), *counting),
        (*map(maker.call, made.last), *(counting if made.last else [])),
        made.handed,
        offsets,
        arena,
        maker.own,
        maker.own_bytes,
        dict(plan.results),
        any(_reads_again(work.kernel) for _, work in works_of(made.every)),
    )


def _reads_again(kernel: Kernel) -> bool:
    """Return whether a kernel reads elements several times: windows of images."""
    return isinstance(kernel, Contract) and Product(kernel).again > READS_AGAIN


def prepared(kernels: Sequence[Kernel], target: Target) -> Simplified:
    """Return a plan's kernels, simpler, and their arrays as a target keeps them."""
    simple = simplify(kernels)
    apart = channels_apart(inside_pads(simple.every))
    every = tuple(map(as_loop, apart))
    simple = Simplified(simple.once, every)
    if target.products == "float32":
        return simple
    if target.products == "tf32":
        simple = Simplified(simple.once, tuple(in_bytes(simple.every)))
    return kept_operands(simple, target.products == "bf16")


def steps_of(simple: Simplified, target: Target) -> list[Kernel]:
    """Return the kernels of a step, long contractions cut for a target."""

    def parts(kernel: Contract) -> int:
        if not is_host(kernel):
            return 1
        return parts_for(kernel, target.products, target.half)

    return in_parts(simple.every, parts)


class _Maker:
    """Collects functions, and the memory that they own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.functions: dict[str, str] = {}
        self.own: dict[Root, int] = {}
        self.own_bytes = 0
        self._scratch = 0
        self._calls: dict[int, Call] = {}
        # How lanes were cut: their shared memory, and what was beside them.
        self._cut: dict[int, tuple[int, Where]] = {}

    def keep(self, buffers: Iterable[Buffer]) -> None:
        """Give buffers memory of their own."""
        for one in buffers:
            if root(one) not in self.own:
                self.own[root(one)] = self.own_bytes
                self.own_bytes += rounded(one.nbytes, ALIGNMENT)

    def call(self, launch: Launch) -> Call:
        """Return a launch, its function written down if it is new."""
        if id(launch) not in self._calls:
            self._calls[id(launch)] = self._new_call(launch)
        return self._calls[id(launch)]

    def _new_call(self, launch: Launch) -> Call:
        lanes = sorted(self._lanes(launch), key=PartitionText.order)
        function = Function(lanes)
        shared = max(one.shared for one in lanes)
        if any(one.staging for one in lanes):
            shared = max(shared, self.target.shared // SPREAD)
        pair = _products(launch) > 0 and 2 * (shared + 1024) <= self.target.shared
        name, text = function.named(pair)
        self.functions.setdefault(name, text)
        blocks = sum(one.blocks for one in lanes)
        return Call(name, blocks, shared, self._renamed(function.buffers))

    def _lanes(self, launch: Launch) -> list[PartitionText]:
        """Return the lanes of a launch, cut such that its blocks run at once."""
        if launch.lanes[0].like is not None:
            return [self._lane(one, *self._cut[id(one.like)]) for one in launch.lanes]
        where = Where(alone=_products(launch) == 1)
        for one in launch.lanes:
            if one.by_rows and one.haste is not Haste.ASIDE:
                where = replace(where, aside=MOST_ASIDE)  # all wait for its few blocks
        room = self.target.half
        lanes = [self._lane(one, room, where) for one in launch.lanes]
        if sum(one.blocks for one in lanes) <= PROCESSORS:
            room = self.target.shared - 1024
            lanes = [self._lane(one, room, where) for one in launch.lanes]
        self._cut |= {id(one): (room, where) for one in launch.lanes}
        if sum(one.blocks for one in lanes) > 2 * PROCESSORS:
            self._cut_in_one_wave(launch, lanes, where)
        return lanes

    def _cut_in_one_wave(
        self, launch: Launch, lanes: list[PartitionText], where: Where
    ) -> None:
        """Cut products into fewer blocks, if some would have to wait for the others."""

        def rank(number: int) -> tuple[bool, int]:
            """Rather what this step needs no more, such as new weights."""
            written = launch.lanes[number].works[0].writes()
            needed = any(kind == "arena" for kind, _ in written)
            return needed, -lanes[number].blocks

        for number in sorted(range(len(lanes)), key=rank):
            excess = sum(one.blocks for one in lanes) - 2 * PROCESSORS
            lane, blocks = launch.lanes[number], lanes[number].blocks
            if excess <= 0 or not isinstance(lane.works[0].kernel, Contract):
                continue
            fewer = replace(where, most=max(blocks - excess, 1))
            again = self._lane(lane, self.target.half, fewer)
            if 0.4 * blocks <= again.blocks < blocks:
                lanes[number] = again
                self._cut[id(lane)] = self.target.half, fewer

    def _renamed(self, buffers: Sequence[Buffer]) -> tuple[Buffer, ...]:
        """Give scratch memory names of its own in this program."""
        made = []
        for one in buffers:
            if one.kind == "scratch":
                self._scratch += 1
                one = replace(one, name=f"scratch{self._scratch}")
                self.keep([one])
            made.append(one)
        return tuple(made)

    def _lane(self, lane: Lane, room: int, where: Where) -> PartitionText:
        how = self.target.products
        if lane.by_rows:
            return self._lane_by_rows(lane, room)
        bodies = [emit_work(one, how, room, where) for one in lane.works]
        blocks = bodies[0].blocks if len(bodies) == 1 else 1
        if lane.haste is Haste.ASIDE:
            blocks = min(blocks, where.aside)
        return PartitionText(bodies, blocks, lane.haste)

    def _lane_by_rows(self, lane: Lane, room: int) -> PartitionText:
        rows = rows_of_block(lane.rows, (lane.like or lane).kernels)
        bodies = [emit_rows(one, rows) for one in lane.works]
        staging = RowStaging(
            rows,
            lane.private,
            [lane.shown_by(one) for one in lane.works],
            given_by_rows(lane.works, lane.rows),
            {root(one) for one in near_for_rows(lane.works)},
            {one for work in lane.works for one in work.settled},
        )
        made = PartitionText(bodies, lane.rows // rows, lane.haste, staging)
        if made.shared > room:  # what others have made stays where it is
            made = replace(made, staging=replace(staging, read={}, read_whole=()))
        return made

    def counting(self) -> Call:
        """Return the launch that counts steps, for programs with results."""
        self.functions["count_step"] = (
            'extern "C" __global__ void count_step(int* step) {\n'
            "  start_after_others();\n"
            "  if (THREAD == 0) *step += 1;\n}\n"
        )
        return Call("count_step", 1, 0, (STEP,))


def _products(launch: Launch) -> int:
    firsts = (lane.works[0].kernel for lane in launch.lanes)
    return sum(isinstance(one, Contract) for one in firsts)


def emit_work(work: Work, precision: str, room: int, where: Where) -> Emitted:
    """Return a kernel and its guests as text, within some shared memory."""
    kernel = work.kernel
    if isinstance(kernel, Contract):
        return emit_contract(work, precision, room, where)
    if isinstance(kernel, Loop):
        if kernel.adds:
            return emit_adds(kernel)
        if work.tallies:
            return emit_tallied_map(work)
        if turned := turned_axes(work):
            return emit_turned(work, turned)
        return emit_reduction(work) if kernel.reduced else emit_map(work)
    if isinstance(kernel, Scan):
        return emit_scan(kernel)
    if isinstance(kernel, Scatter):
        return emit_scatter(kernel)
    if isinstance(kernel, PoolBack):
        return emit_pool_back(work)
    raise TypeError(f"no CUDA code for a {type(kernel).__name__}")


def emit_rows(work: Work, rows: int) -> Emitted:
    """Return a loop of which a block has some rows as text."""
    assert isinstance(work.kernel, Loop)
    if work.kernel.reduced:
        return emit_reduction(work, rows)
    return emit_map(work, rows)


def constants_of(emission: Emission) -> dict[Root, np.ndarray]:
    """Return the arrays that a program brings along."""
    found = {}
    for call in emission.calls:
        for one in call.buffers:
            if one.kind == "constant":
                assert one.array is not None
                found[root(one)] = np.ascontiguousarray(one.array)
    return found
