"""`ganglion.function`: traced once for a signature, compiled, and equal to eager."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import ops
from ganglion.system import uncompiled
from ganglion.tensors import Tensor
from ganglion.training.functions import run_functions_eagerly


def test_a_function_is_traced_once_for_each_signature() -> None:
    calls = []

    @ganglion.function
    def scaled(x: Any, factor: float = 2.0, *, shift: Any = None) -> Any:
        calls.append(x.shape)
        return {"y": x * factor + (0.0 if shift is None else shift), "factor": factor}

    for size in (2, 2, 3, 3):
        result = scaled(np.ones(size, "float32"))
        assert type(result["y"]) is Tensor
        np.testing.assert_array_equal(result["y"], [2.0] * size)
        assert result["factor"] == 2.0
    assert calls == [(2,), (3,)]
    assert float(scaled(ops.ones((2,)), factor=3.0, shift=1.0)["y"][0]) == 4.0
    assert float(scaled(ops.ones((2,)), 3.0, shift=1.0)["y"][0]) == 4.0
    assert scaled.tracing_count == 3


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_variables_are_read_assigned_and_made(backend: str) -> None:
    made: list[Any] = []

    @ganglion.function
    def step(x: Any) -> Any:
        if not made:
            made.append(ganglion.Variable(10.0))
        count.assign_add(1)
        made[0].assign(made[0] * 2.0 + ops.sum(x))
        return made[0], count

    before = ganglion.config.backend_choice()
    ganglion.config.set_backend(backend)
    try:
        count = ganglion.Variable(0, dtype="int32")
        step([1.0, 2.0])
        value, counted = step(np.ones(2, "float32"))
        value, counted = step(np.ones(2, "float32"))
    finally:
        ganglion.config.set_backend(before)
    assert (float(value), int(counted), int(count)) == (98.0, 3, 3)
    assert float(made[0]) == 98.0


def test_an_own_loop_learns_as_fit_does() -> None:
    x = np.random.default_rng(0).normal(size=(32, 3)).astype("float32")
    y = x @ np.array([[1.0], [2.0], [-1.0]], "float32")

    def model() -> Any:
        ganglion.utils.set_random_seed(3)
        return ganglion.Sequential(
            [ganglion.Input((3,)), ganglion.layers.Dense(4), ganglion.layers.Dense(1)]
        )

    fitted = model()
    fitted.compile(ganglion.optimizers.Adam(0.1), "mse")
    history = fitted.fit(x, y, batch_size=32, epochs=5, verbose=0)
    looped, optimizer = model(), ganglion.optimizers.Adam(0.1)
    loss_of = ganglion.losses.MeanSquaredError()

    @ganglion.function(jit_compile=True)
    def step(x: Any, y: Any) -> Any:
        with ganglion.GradientTape() as tape:
            loss = loss_of(y, looped(x, training=True))
        grads = tape.gradient(loss, looped.trainable_variables)
        optimizer.apply_gradients(zip(grads, looped.trainable_variables, strict=True))
        return loss

    losses = [float(step(x, y)) for _ in range(5)]
    np.testing.assert_allclose(losses, history.history["loss"], rtol=1e-5)
    assert step.tracing_count == 1
    for mine, theirs in zip(looped.get_weights(), fitted.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_methods_are_traced_for_each_instance() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @ganglion.function
        def __call__(self, x: Any) -> Any:
            return x * self.factor

    two, three = Scale(2.0), Scale(3.0)
    assert [float(s(ops.ones(()))) for s in (two, three, two)] == [2.0, 3.0, 2.0]


def test_functions_within_functions_and_tapes_are_part_of_them() -> None:
    square = ganglion.function(lambda x: x * x)
    outer = ganglion.function(lambda x: square(x) + 1.0)
    assert float(outer(3.0 * ops.ones(()))) == 10.0
    x = ops.convert_to_tensor(3.0)
    with ganglion.GradientTape() as tape:
        tape.watch(x)
        y = outer(x)
    assert float(tape.gradient(y, x)) == 6.0


def test_a_signature_converts_and_refuses() -> None:
    spec = ganglion.KerasTensor((None, 2), "float32")
    double = ganglion.function(lambda x: x * 2, input_signature=[spec])
    assert double(np.ones((3, 2), "int64")).dtype == "float32"
    with pytest.raises(TypeError, match="input_signature"):
        double(np.ones(3))


def test_python_control_flow_on_a_tensor_is_refused_with_the_way_out() -> None:
    @ganglion.function(autograph=False)
    def chosen(x: Any) -> Any:
        return x if x > 0 else -x

    with pytest.raises(TypeError, match=r"ops\.where"):
        chosen(np.float32(1.0))
    run_functions_eagerly(True)
    try:
        assert float(chosen(ops.convert_to_tensor(-2.0))) == 2.0
    finally:
        run_functions_eagerly(False)


def test_results_that_are_no_tensors_and_indices_out_of_range() -> None:
    table = ganglion.Variable(np.ones((3, 2), "float32"))
    look_up = ganglion.function(lambda i: (ops.take(table, i, axis=0), None, "text"))
    rows, nothing, text = look_up(np.array([0, 2]))
    assert rows.shape == (2, 2)
    assert (nothing, text) == (None, "text")
    with pytest.raises(IndexError, match="out of range"):
        look_up(np.array([0, 3]))


def test_a_function_that_is_compiled_again_and_again_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = ganglion.config.backend_choice()
    ganglion.config.set_backend("numpy")
    try:
        power = ganglion.function(lambda x, n: x**n)
        for n in range(9):
            power(np.float32(1.0), n)
    finally:
        ganglion.config.set_backend(before)
    told = "".join(capsys.readouterr())
    assert "was compiled 8 times" in told


def test_a_function_that_looks_at_numbers_runs_as_python():
    @ganglion.function
    def halved(x):
        steps = 0
        while ops.max(x) > 1.0:
            x, steps = x / 2.0, steps + 1
        return x, steps

    with uncompiled.counting() as counts:
        x, steps = halved(ops.convert_to_tensor([3.0, 5.0]))
        assert halved(ops.convert_to_tensor([1.0, 0.5]))[1] == 0
    assert (x.numpy().tolist(), steps) == ([0.375, 0.625], 3)
    assert "2 calls of functions that look at numbers (halved)" in uncompiled.summary(
        counts
    )
    assert halved.tracing_count == 1  # it was tried once
