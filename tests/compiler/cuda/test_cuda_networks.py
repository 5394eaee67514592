"""Networks of other kinds than the recipes', on a GPU emulated by a CPU."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import step_of_model
from cuda_checks import check
from cuda_networks import CLASSES, NETWORKS, step_of

from ganglion import config, layers, models, utils
from ganglion.compiler.cuda.launches import fused_kernels_of
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.plan.kernels import Contract, Loop

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


@pytest.fixture(autouse=True)
def small_windows_are_written_out(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    monkeypatch.setattr(TUNING, "fewest_depthwise_elements", 1)
    config.set_backend("numpy")
    utils.set_random_seed(0)


# Too few rows for a block each, and enough: without `--all`, by turns.
BATCHES = [
    pytest.param(
        *(name, batch), marks=() if number % 2 == (batch > 3) else pytest.mark.more
    )
    for number, name in enumerate(NETWORKS)
    for batch in (3, 16)
]


@pytest.mark.parametrize(("name", "batch"), BATCHES)
def test_a_step_is_what_it_means(name, batch):
    program, data, state = step_of(name, batch, side=8)
    check(program, data, state, steps=2, tolerance=2e-3, precise="float32")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.sampled(2)
def test_on_tensor_cores(name):
    program, data, state = step_of(name, batch=3, side=8)
    check(program, data, state, tolerance=2e-1, precise="bf16")


def test_depthwise_products_are_loops_and_not_products():
    program, _, _ = step_of("mobile", batch=4, side=16)
    plan = build(program, GpuSpec(), after="fuse")
    before = [k for k in plan.kernels if isinstance(k, Contract)]
    kernels = build(program, GpuSpec(), after="rounded-operands").every
    assert any(product.batch[-1:] and product.batch[-1].left == 1 for product in before)
    for product in (k for k in kernels if isinstance(k, Contract)):
        assert product.columns[-1].size >= CLASSES
    windows = [k for k in kernels if k.name == "conv" and isinstance(k, Loop)]
    assert len(windows) == 4
    assert all(loop.reduced == 0 for loop in windows)
    # Windows of 3 x 3 have a loop, that of 5 x 5 has three.
    gradients = [k for k in kernels if k.name == "conv_kernel" and isinstance(k, Loop)]
    assert sorted(len(loop.outputs) for loop in gradients) == [8, 8, 9, 9, 9, 9]


def test_products_of_equal_layers_update_their_own_weights():
    program, _, _ = step_of("dense", batch=4, side=8)
    launches = build(program, GpuSpec()).every
    updated = [
        sorted(
            b.name
            for epilogue in fused.epilogues
            for b in epilogue.writes()
            if b.kind == "state"
        )
        for _, fused in fused_kernels_of(launches)
        if isinstance(fused.kernel, Contract)
    ]
    kernels = [[n for n in names if n.endswith("/kernel")] for names in updated]
    weights = [names for names in kernels if names]
    assert sorted(weights) == [
        ["dense/kernel"],
        ["dense_1/kernel"],
        ["dense_2/kernel"],
        ["dense_3/kernel"],
    ]


def test_parts_of_sums_are_not_rounded(monkeypatch):
    """A product is cut into parts: those of bf16 results are kept as floats."""
    monkeypatch.setattr(TUNING, "bf16_elements", 1)
    inner = [layers.Dense(64, "relu"), layers.Dense(64, "relu"), layers.Dense(3)]
    model = models.Sequential([layers.Input((3072,)), *inner])
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 3072)).astype("float32")
    y = rng.normal(size=(8, 3)).astype("float32")
    program, data, state = step_of_model(model, x, y, 8, 8)
    launches = build(program, GpuSpec(precision="bf16")).every
    parts = {
        buffer.dtype
        for _, fused in fused_kernels_of(launches)
        for buffer in fused.buffers()
        if buffer.name.endswith(" parts")
    }
    assert parts == {np.dtype("float32")}
    check(program, data, state, tolerance=2e-1, precise="bf16")
