"""The launch verifier: schedules that are broken on purpose are refused."""

import copy
import re
from dataclasses import replace

import pytest
from step_programs import step_of

from ganglion.compiler.cuda.launches import (
    Launch,
    LaunchError,
    fused_kernels_of,
    verify_schedule,
    verify_step,
)
from ganglion.compiler.cuda.pipeline import build, pipeline
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.plan.kernels import Contract
from ganglion.compiler.plan.plan import PlanError

SPEC = GpuSpec()


@pytest.fixture(scope="module")
def program():
    return step_of("mnist-mlp", rows=256, batch=64)[0]


@pytest.fixture
def schedule(program):
    """Return a schedule that a test may break, and of which the kernels stay."""
    result = build(program, SPEC)
    every = [
        Launch([copy.copy(partition) for partition in launch.partitions])
        for launch in result.every
    ]
    for partition in (partition for launch in every for partition in launch.partitions):
        fused = [copy.copy(kernel) for kernel in partition.fused_kernels]
        for kernel in fused:
            kernel.unstored = set(kernel.unstored)
        partition.fused_kernels = fused
    result = replace(result, every=every, last=[])
    verify_schedule(result)
    return result


def refused(schedule, pattern):
    with pytest.raises(LaunchError, match=pattern) as caught:
        verify_schedule(schedule)
    assert isinstance(caught.value, PlanError)
    return str(caught.value)


def test_launches_in_another_order_are_refused(schedule):
    schedule.every[1], schedule.every[2] = schedule.every[2], schedule.every[1]
    message = refused(schedule, r"launch every \d+ reads '.+', which launch \d+ writes")
    assert "mnist-mlp.train_step" in message
    assert "wrong order" in message


def test_partitions_that_need_each_other_are_refused(schedule):
    first, second, *rest = schedule.every
    both = Launch([*first.partitions, *second.partitions])
    broken = replace(schedule, every=[both, *rest])
    refused(broken, r"launch every 0 (reads|writes|overwrites) '.+side by side")


def test_arrays_that_are_overwritten_too_early_are_refused(schedule):
    """A product reads weights, which an epilogue of a later launch updates."""
    partitions = [
        partition for launch in schedule.every for partition in launch.partitions
    ]
    updates = [
        partition
        for partition in partitions
        for fused in partition.fused_kernels
        if any(
            key[0] == "state" and key[1].endswith("kernel") for key in fused.writes()
        )
    ]
    moved = updates[-1]
    home = next(launch for launch in schedule.every if moved in launch.partitions)
    home.partitions = [
        partition for partition in home.partitions if partition is not moved
    ]
    every = [
        Launch([moved]),
        *(launch for launch in schedule.every if launch.partitions),
    ]
    refused(replace(schedule, every=every), r"launch every \d+ \w+ '.+', which")


def test_old_values_must_be_read_before_they_are_overwritten(program):
    schedule = build(program, SPEC, after="launches")
    step = schedule.step
    reads = {b.name for k in step.every[:-1] for b in k.reads() if b.kind == "state"}
    writer = next(
        kernel
        for kernel in step.every
        if {b.name for b in kernel.writes() if b.kind == "state"} & reads
    )
    late = replace(step, every=(writer, *(k for k in step.every if k is not writer)))
    with pytest.raises(LaunchError, match="launch every"):
        verify_schedule(replace(schedule, step=late))


def test_a_kernel_must_run_and_only_once(schedule):
    gone, *rest = schedule.every
    name = gone.partitions[0].kernels[0].name
    refused(replace(schedule, every=rest), f"no launch of every runs {name}")
    refused(replace(schedule, every=[gone, gone, *rest]), f"runs {name} again")


def test_what_stays_with_a_block_is_nobody_elses(schedule):
    launches = schedule.every
    numbered = list(fused_kernels_of(launches))
    fused, key = next(
        (fused, key)
        for number, fused in numbered
        for key in sorted(fused.writes())
        if key[0] == "arena"
        and any(n > number and key in fused.reads() for n, fused in numbered)
    )
    fused.unstored = {*fused.unstored, key}
    pattern = rf"reads {re.escape(repr(key[1]))}, which launch \d+ keeps in its blocks"
    refused(schedule, pattern)
    fused.unstored.remove(key)
    partition = next(
        partition
        for launch in launches
        for partition in launch.partitions
        if fused in partition.fused_kernels
    )
    partition.private = {key: 1}
    refused(schedule, pattern)


def test_what_is_still_being_written_is_not_fetched_early(schedule):
    before, launch = schedule.every[:2]
    fused = next(iter(launch.fused_kernels))
    fused.ready = fused.ready | {sorted(before.writes())[0]}
    refused(schedule, "launch every 1 fetches '.+' early")


def test_row_wise_blocks_have_all_that_they_read(schedule):
    partition = next(
        partition
        for launch in schedule.every
        for partition in launch.partitions
        if len(partition.fused_kernels) > 1 and not partition.row_wise
    )
    partition.row_counts = frozenset({64})
    refused(schedule, r"launch every \d+ has blocks that need rows of others")


def test_memory_is_shared_only_in_turn(schedule):
    used = [
        sorted(key for key in launch.writes() if key in schedule.offsets)
        for launch in schedule.every
    ]
    first, other = next(keys for keys in used if len(keys) > 1)[:2]
    offsets = schedule.offsets | {other: schedule.offsets[first]}
    message = refused(replace(schedule, offsets=offsets), "share memory of the arena")
    assert repr(first[1]) in message
    assert "launch every" in message
    offsets = schedule.offsets | {first: schedule.arena}
    refused(replace(schedule, offsets=offsets), f"{first[1]!r} leaves the arena")
    offsets = {key: at for key, at in schedule.offsets.items() if key != first}
    refused(replace(schedule, offsets=offsets), f"{first[1]!r} has no memory")


def test_the_workspace_is_shared_by_nobody(schedule):
    workspace = dict.fromkeys(schedule.workspace, 0)
    assert len(workspace) > 1
    refused(replace(schedule, workspace=workspace), "share memory of the workspace")


def test_what_is_prefetched_must_come_from_the_step_before(schedule):
    next_writers = [k for k in schedule.step.for_next if k.writes()[0].kind == "next"]
    kept = [k for k in schedule.step.for_next if k is not next_writers[0]]
    step = replace(schedule.step)
    step.__dict__["for_next"] = kept
    refused(replace(schedule, step=step), "no launch makes '.+' for the next step")


def test_a_step_reads_nothing_before_it_is_written(program):
    step = build(program, SPEC, after="prefetch")
    first = next(k for k in step.every if isinstance(k, Contract))
    last = (*(k for k in step.every if k is not first), first)
    with pytest.raises(LaunchError, match=r"kernel \d+ \(.+\) reads '.+' before it"):
        verify_step(replace(step, every=last))


def test_every_pass_has_a_name_and_a_reason():
    passes = pipeline(SPEC).passes
    names = [listed.name for listed in passes]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("[a-z0-9-]+", name) for name in names)
    assert all(listed.why for listed in passes)
    assert names[-1] == "memory"


def test_an_unknown_pass_is_refused_with_the_names(program):
    with pytest.raises(ValueError, match=r"no pass 'nonsense'; there are: .*prefetch"):
        build(program, SPEC, after="nonsense")
