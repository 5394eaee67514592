"""Loops over time on the CPU: graph, plan and machine code agree, on any threads."""

import pytest
from cpu_checks import check
from loop_programs import biased_input, loop_program, lstm, mixing, nested_program

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.time_loop import independent_groups
from ganglion.compiler.ir.graph import Program
from ganglion.compiler.plan.kernels import Contract
from ganglion.compiler.plan.time_loop import TimeLoop


def _loops(program: Program) -> list[TimeLoop]:
    return [k for k in build(program).kernels if isinstance(k, TimeLoop)]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(("batch", "units"), [(24, 16), (5, 7)])
def test_lstm_and_its_gradients(batch: int, units: int, backwards: bool) -> None:
    program, data = loop_program(lstm, 2, 6, batch, 3, units, backwards)
    check(program, data, {}, rtol=2e-5, atol=2e-6)


def test_threads_share_rows_that_never_meet() -> None:
    program, _ = loop_program(lstm, 2, 6, 32, 3, 16)
    loops = _loops(program)
    assert [independent_groups(loop) for loop in loops] == [4, 4]
    # One product and one loop of gates a step, there and back.
    assert [len(loop.body) for loop in loops] == [2, 2]


def test_a_product_prefetches_what_the_next_step_touches() -> None:
    program, _ = loop_program(lstm, 2, 6, 32, 3, 16)
    for loop in _loops(program):
        (product,) = (k for k in loop.body if isinstance(k, Contract))
        windows = {window.buffer: window for window in loop.windows}
        ahead = [windows[buffer] for buffer in product.prefetched]
        now = [window for window in loop.windows if window not in ahead]
        begins = {(w.stacked.key, w.start(1)) for w in now if not w.slots}
        in_use = {(w.stacked.key, w.start(0)) for w in now}
        assert {(w.stacked.key, w.start(0)) for w in ahead} == begins - in_use


def test_a_bias_of_the_input_is_added_in_the_loop() -> None:
    program, data = loop_program(biased_input, 1, 6, 16, 3, 16)
    before, after = (build(program, after=name) for name in ("pool-masks", "lower"))
    size = (6, 16, 16)
    there, _ = (n for n in before.graph.nodes if n.op.name == "scan")
    (bias,) = [x for x in there.inputs if x.shape == size]
    assert bias.op.name == "add"
    kernels = list(after.kernels)
    loop = next(n for n, kernel in enumerate(kernels) if isinstance(kernel, TimeLoop))
    # Nothing but the product, and what the carry begins with, comes before the loop.
    assert [kernel.name for kernel in kernels[:loop]] == ["matmul", "copy"]
    check(program, data, {}, rtol=2e-5, atol=2e-5)


def test_rows_that_meet_stay_on_one_thread() -> None:
    program, data = loop_program(mixing, 1, 5, 16, 4, 8)
    assert [independent_groups(loop) for loop in _loops(program)] == [1, 1]
    check(program, data, {}, rtol=2e-5, atol=2e-6)


def test_a_loop_in_a_loop() -> None:
    program, data = nested_program()
    check(program, data, {}, rtol=2e-5, atol=2e-6)


def test_code_does_not_grow_with_the_number_of_steps() -> None:
    short, _ = loop_program(lstm, 2, 3, 8, 3, 16)
    long, _ = loop_program(lstm, 2, 300, 8, 3, 16)
    sizes = [[len(loop.body) for loop in _loops(program)] for program in (short, long)]
    assert sizes[0] == sizes[1]
