"""Launches for many models: what suits a single one is changed or moved.

A single model keeps few multiprocessors busy, and its arrays stay in the L2 cache. Many
models keep all of them busy, but exceed the cache: what counts is how often bytes move,
and that blocks with much shared memory run in whole waves. Sums keep the order that
they have for a single model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from ganglion.compiler.cuda.direct_weights import direct_weights, reading_weights
from ganglion.compiler.cuda.fusion import FusedKernel, GatheredContract
from ganglion.compiler.cuda.launches import (
    Launch,
    LaunchError,
    Partition,
    Priority,
    Schedule,
    partitions_of,
    verify_schedule,
)
from ganglion.compiler.cuda.passes.products import Scaled
from ganglion.compiler.cuda.scheduler import allocate, end_run, mark_ready
from ganglion.compiler.cuda.tiling import Product, on_tensor_cores
from ganglion.compiler.plan.epilogues import is_copy, is_flat, is_map
from ganglion.compiler.plan.kernels import (
    Buffer,
    BufferKey,
    Contract,
    Indirect,
    Kernel,
    Load,
    Loop,
    Shuffled,
    View,
)
from ganglion.compiler.plan.plan import read_by


def schedule_of_models(schedule: Schedule, precision: str) -> Schedule:
    """Return the launches of a step for many models."""
    schedule = _with_changes(schedule, _reading_weights(schedule))
    schedule = _with_changes(schedule, _gathering_products(schedule, precision))
    later = _transpose_later(schedule)
    schedule = _join_small_prefetches(later if _is_in_order(later) else schedule)
    schedule = _finished(schedule)
    verify_schedule(schedule)
    return schedule


def _finished(schedule: Schedule) -> Schedule:
    """Return a schedule after the last passes of the pipeline."""
    return allocate(end_run(mark_ready(replace(schedule, last=[]))))


def _is_in_order(schedule: Schedule) -> bool:
    """Return whether all dependencies hold."""
    try:
        verify_schedule(_finished(schedule))
    except LaunchError:
        return False
    return True


# ---- changing kernels of a schedule --------------------------------------------------

Changes = Mapping[int, Kernel | None]  # by id of the kernel; None removes it


def _with_changes(
    schedule: Schedule, changes: Changes, more: Sequence[Kernel] = ()
) -> Schedule:
    """Return a schedule with some kernels changed or removed.

    Steps begin with `more` kernels, which have no launch yet.
    """
    old = schedule.step
    step = replace(
        old,
        once=tuple(_changed(old.once, changes)),
        prefetched=tuple(_changed(old.prefetched, changes)),
        every=(*more, *_changed(old.every, changes)),
    )
    # Prefetched kernels that write for the next step are renamed copies.
    of_next, later = dict[int, Kernel | None](), iter(step.for_next)
    for kernel, for_next in zip(old.prefetched, old.for_next, strict=True):
        of_next[id(for_next)] = next(later) if _stays(kernel, changes) else None
    return replace(
        schedule,
        step=step,
        once=_changed_launches(schedule.once, changes),
        first=_changed_launches(schedule.first, changes),
        every=_changed_launches(schedule.every, {**changes, **of_next}),
    )


def _stays(kernel: Kernel, changes: Changes) -> bool:
    return changes.get(id(kernel), kernel) is not None


def _changed(kernels: Iterable[Kernel], changes: Changes) -> Iterator[Kernel]:
    for kernel in kernels:
        changed = changes.get(id(kernel), kernel)
        if changed is not None:
            yield changed


def _changed_launches(launches: Iterable[Launch], changes: Changes) -> list[Launch]:
    changed = (
        [_changed_partition(partition, changes) for partition in launch.partitions]
        for launch in launches
    )
    some = ([p for p in partitions if p.fused_kernels] for partitions in changed)
    return [Launch(partitions) for partitions in some if partitions]


def _changed_partition(partition: Partition, changes: Changes) -> Partition:
    fused = partition.fused_kernels
    return _derived(
        partition,
        [_changed_fused(f, changes) for f in fused if _stays(f.kernel, changes)],
    )


def _changed_fused(fused: FusedKernel, changes: Changes) -> FusedKernel:
    (kernel,) = _changed([fused.kernel], changes)
    loops = _changed(fused.epilogues, changes)
    sums = [s for s in fused.column_sums if _stays(s.kernel, changes)]
    return replace(
        fused,
        kernel=kernel,
        epilogues=[loop for loop in loops if isinstance(loop, Loop)],
        column_sums=[_changed_fused(column_sum, changes) for column_sum in sums],
    )


def _derived(partition: Partition, fused: list[FusedKernel]) -> Partition:
    """Return a partition with other kernels that remembers its origin."""
    return replace(partition, fused_kernels=fused, derived_from=partition)


def _reading_weights(schedule: Schedule) -> Changes:
    """Return products that read weights themselves, and remove their copies."""
    direct, step = direct_weights(schedule), schedule.step
    changed = (
        (kernel, reading_weights(kernel, direct))
        for kernel in (*step.prefetched, *step.every)
    )
    return {id(kernel): now for kernel, now in changed if now is not kernel}


# ---- rows of the data ----------------------------------------------------------------
# A batch is gathered for the products that read it. That of a single model stays in
# the cache; those of many are written to memory, and read again by each product. All
# models share the table, of which they are rows.


def _gathering_products(schedule: Schedule, precision: str) -> Changes:
    """Return products that read rows of a table, and remove what copied those."""
    changes: dict[int, Kernel | None] = {}
    step = schedule.step
    for kernel in step.prefetched:
        gather = _rows_of_table(kernel, step.prefetched)
        if gather is None or not _is_alone(kernel, schedule.first):
            continue
        assert isinstance(kernel, Loop)
        copy = kernel.target.buffer
        others = (*step.once, *(k for k in step.prefetched if k is not kernel))
        readers = [k for k in step.every if copy.key in read_by([k])]
        if copy.key in read_by(others) or _add_columns(readers, schedule):
            continue
        products = [_gathering(k, copy, gather, precision) for k in readers]
        if readers and all(products):
            changes |= {id(k): p for k, p in zip(readers, products, strict=True)}
            changes[id(kernel)] = None
    return changes


def _is_alone(kernel: Kernel, launches: Sequence[Launch]) -> bool:
    """Return whether a kernel has no epilogues and no column sums."""
    return any(
        fused.kernel is kernel and fused.kernels == [kernel]
        for partition in partitions_of(launches)
        for fused in partition.fused_kernels
    )


def _add_columns(kernels: Sequence[Kernel], schedule: Schedule) -> bool:
    """Return whether any of these kernels has column sums."""
    some = {id(kernel) for kernel in kernels}
    return any(
        fused.column_sums and id(fused.kernel) in some
        for partition in partitions_of(schedule.every)
        for fused in partition.fused_kernels
    )


def _rows_of_table(kernel: Kernel, prefetched: Sequence[Kernel]) -> Indirect | None:
    """Return what a loop copies, if it only gathers rows that surely exist."""
    if not isinstance(kernel, Loop) or not is_map(kernel) or len(kernel.outputs) > 1:
        return None
    gather, target = kernel.expr, kernel.target
    if not isinstance(gather, Indirect) or not isinstance(gather.row, Load):
        return None
    index = gather.row.view
    fits = (
        kernel.shape == (index.buffer.size, gather.row_size)
        and is_flat(target, kernel.shape)
        and target.buffer.dtype == gather.table.dtype
        and gather.table.kind == "data"
        and (gather.within, gather.offset) == ((0, 1), 0)
        and (index.strides, index.offset) == ((1, 0), 0)
        and index.buffer.dtype.name == "int32"
        and _are_shuffled(index.buffer.key, gather.rows, prefetched)
    )
    return gather if fits else None


def _are_shuffled(key: BufferKey, rows: int, kernels: Iterable[Kernel]) -> bool:
    """Return whether an array holds nothing but shuffled row numbers."""
    written = [
        expr
        for kernel in kernels
        if isinstance(kernel, Loop)
        for expr, view in kernel.outputs
        if view.buffer.key == key
    ]
    return len(written) == 1 and all(
        isinstance(expr, Shuffled) and expr.rows <= rows for expr in written
    )


def _gathering(
    kernel: Kernel, copy: Buffer, gather: Indirect, precision: str
) -> GatheredContract | None:
    """Return a product that gathers its left operand, None if it cannot."""
    if type(kernel) is not Contract or not on_tensor_cores(kernel, precision):
        return None
    left = kernel.left
    axes = [axis for axis in kernel.axes if axis.size > 1 and axis.left]
    lies = sorted((axis.left, axis.size) for axis in axes)
    size, table = gather.row_size, gather.table
    if lies != [(1, size), (size, copy.size // size)] or left.offset:
        return None
    if kernel.right.buffer.key == copy.key or not Product(kernel).is_matrix_product:
        return None
    if isinstance(copy, Scaled):
        known = (table.name, table.shape, table.dtype, table.kind)
        table = Scaled(*known, scale=copy.scale)
    assert isinstance(gather.row, Load)
    values = {field.name: getattr(kernel, field.name) for field in fields(Contract)}
    values["left"] = View(table, left.strides)
    return GatheredContract(**values, index=gather.row.view.buffer, copied=left)


# ---- where copies and small kernels run ----------------------------------------------


def _transpose_later(schedule: Schedule) -> Schedule:
    """Transpose weights in the step that reads them, in a launch without products.

    Otherwise they are transposed for the next step as soon as they have changed, beside
    products: few such blocks run at once, as each reserves a product's shared memory.
    """
    moved = list(_late_copies(schedule))
    if not moved:
        return schedule
    copies = [fused.kernel for _, fused, _ in moved]
    left_out = dict[int, Kernel | None]((id(kernel), None) for kernel in copies)
    schedule = _with_changes(schedule, left_out, copies)
    for partition, fused, place in moved:
        late = _derived(partition, [fused])
        late.priority = Priority.CRITICAL
        schedule.every[place].partitions.append(late)
    return schedule


def _late_copies(schedule: Schedule) -> Iterator[tuple[Partition, FusedKernel, int]]:
    """Yield copies of state that can be made later, and the launch for each.

    Each is given as in the launches before the first step.
    """
    step, every = schedule.step, schedule.every
    for kernel, for_next in zip(step.prefetched, step.for_next, strict=True):
        now, later = (
            _alone_in_partition(kernel, schedule.first),
            _alone_in_partition(for_next, every),
        )
        if now is None or later is None or not _copies_state(kernel):
            continue
        written = {buffer.key for buffer in kernel.writes()}
        readers = [
            number
            for number, launch in enumerate(every)
            if any(not written.isdisjoint(f.reads()) for f in launch.fused_kernels)
        ]
        places = range(min(readers, default=0))
        place = next((n for n in places if not every[n].products), None)
        beside = next(launch for launch in every if later in launch.partitions)
        if place is not None and beside.products and not now.small:
            (fused,) = now.fused_kernels
            yield now, fused, place


def _alone_in_partition(kernel: Kernel, launches: Sequence[Launch]) -> Partition | None:
    """Return the partition of only this kernel, None if there is none."""
    found = (p for p in partitions_of(launches) if p.kernels == [kernel])
    return next(found, None)


def _copies_state(kernel: Kernel) -> bool:
    """Return whether a kernel copies state, perhaps transposed."""
    if not isinstance(kernel, Loop) or not is_copy(kernel):
        return False
    assert isinstance(kernel.expr, Load)
    return kernel.expr.view.buffer.kind == "state"


def _join_small_prefetches(schedule: Schedule) -> Schedule:
    """Let a single block run the small kernels that prepare the next step.

    Blocks of their own, which start first, would delay some blocks of the products
    beside them. The last launch is too late: the next step could not fetch early what
    it writes.
    """
    for place in _places_of_small(schedule):
        changed = _with_small_prefetches(schedule, place)
        if _is_in_order(changed):
            return changed
    return schedule


def _places_of_small(schedule: Schedule) -> Iterator[int]:
    """Yield launches where small kernels disturb least, the best first."""
    launches = list(enumerate(schedule.every))[1:-1]
    for number, launch in launches:
        if any(p.small and p.priority is Priority.DEFERRED for p in launch.partitions):
            yield number
    for number, launch in launches:
        if not launch.products:
            yield number


def _with_small_prefetches(schedule: Schedule, place: int) -> Schedule:
    """Return a schedule with the small prefetched kernels in a single partition."""
    every = [Launch(list(launch.partitions)) for launch in schedule.every]
    small = [
        (launch, partition)
        for launch in every[: place + 1]
        for partition in launch.partitions
        if partition.priority is Priority.PREFETCH
        and partition.small
        and not partition.row_wise
    ]
    for launch, partition in small:
        launch.partitions.remove(partition)
    if not small or not all(launch.partitions for launch in every):
        return schedule
    joined = [fused for _, partition in small for fused in partition.fused_kernels]
    every[place].partitions.append(_derived(small[0][1], joined))
    return replace(schedule, every=every)
