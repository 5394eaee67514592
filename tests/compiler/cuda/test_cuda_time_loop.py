"""Loops over time as CUDA text, run on an emulated GPU."""

import pytest
from cuda_checks import LOSES, check
from cuda_host import reason
from loop_programs import loop_program, lstm, mixing, nested_program

from ganglion.compiler.cuda.emit import emit_program
from ganglion.compiler.cuda.target import GpuSpec

pytestmark = pytest.mark.skipif(reason() is not None, reason=str(reason()))


@pytest.mark.parametrize("precise", ["float32", "tf32"])
@pytest.mark.parametrize(("batch", "units"), [(16, 24), (5, 7)])
def test_lstm_and_its_gradients(batch: int, units: int, precise: str) -> None:
    program, data = loop_program(lstm, 2, 4, batch, 3, units)
    check(program, data, {}, tolerance=LOSES[precise], precise=precise)


def test_backwards_in_time() -> None:
    program, data = loop_program(lstm, 2, 4, 8, 3, 16, backwards=True)
    check(program, data, {}, tolerance=LOSES["tf32"], precise="tf32")


def test_rows_that_meet_and_nested_loops_run_in_one_block() -> None:
    for program, data in (loop_program(mixing, 1, 4, 16, 4, 8), nested_program()):
        check(program, data, {}, tolerance=LOSES["float32"], precise="float32")


def test_weights_of_any_size_are_kept_where_there_is_room() -> None:
    program, _ = loop_program(lstm, 2, 4, 16, 3, 256)
    emission = emit_program(program, GpuSpec(precision="tf32"))
    most = max(call.shared for call in emission.calls)
    assert 100_000 < most <= GpuSpec().shared_per_block


def test_blocks_share_units_where_weights_are_many() -> None:
    program, data = loop_program(lstm, 2, 3, 8, 3, 256)
    emission = emit_program(program, GpuSpec(precision="tf32"))
    texts = [text for text in emission.functions.values() if "KeptWeights<" in text]
    assert all("BlocksTogether" in text for text in texts)
    check(program, data, {}, tolerance=10 * LOSES["tf32"], precise="tf32")


def test_text_does_not_grow_with_the_number_of_steps() -> None:
    texts = [
        emit_program(loop_program(lstm, 2, steps, 8, 3, 16)[0], GpuSpec()).functions
        for steps in (40, 400)
    ]
    sizes = [sum(map(len, functions.values())) for functions in texts]
    assert sizes[1] < 1.5 * sizes[0]  # sums of ten times as many rows are split
