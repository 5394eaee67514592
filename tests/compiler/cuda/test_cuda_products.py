"""Convolutions by patches, and operands in two bytes, on a GPU emulated by a CPU."""

import re

import cuda_host
import numpy as np
import pytest
from cpu_checks import step_of_model, training_step
from cuda_cases import STACKS, Stack, convolution, scaled_bytes
from cuda_checks import check, compiled
from layer_cases import CASES, Case

from ganglion import config, layers, models
from ganglion.compiler.cuda import conv_tiling
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import BF16

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)
# Sums of products in a step lose as much as their largest terms.
LOST = {"tf32": 3e-2, "bf16": 1e-1}
CONVOLUTIONS = {
    "same": ((5, 7, 9, 32), {"filters": 32, "kernel_size": 3, "padding": "same"}),
    "valid": ((4, 9, 9, 16), {"filters": 32, "kernel_size": 3}),
    "large window": ((3, 12, 12, 24), {"filters": 48, "kernel_size": 5}),
    "odd window": ((6, 8, 8, 24), {"filters": 40, "kernel_size": (3, 2)}),
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")


@pytest.fixture
def patches_are_cheap(monkeypatch):
    """Let every convolution that can go by patches do so."""
    for module, name in ((conv_tiling, "_fprop_cost"), (conv_tiling, "_wgrad_cost")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, real=real: 1e-6 * real(*args))


def text_of(program, precise):
    return "".join(compiled(program, None, precise).emission.functions.values())


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_patches(name, patches_are_cheap):
    shape, arguments = CONVOLUTIONS[name]
    program, data, state = training_step(Case("Conv2D", (shape,), arguments), "float32")
    text = text_of(program, "tf32")
    assert "conv_fprop<" in text
    assert "conv_wgrad<" in text
    check(program, data, state, steps=2, tolerance=LOST["tf32"], precise="tf32")


@pytest.mark.parametrize("rows", [3, 9])
def test_convolutions_by_patches_of_bf16(rows, patches_are_cheap):
    program, data, state = convolution(rows, 32)
    text = text_of(program, "bf16")
    assert "typedef bf16 Left" in text
    assert "conv_fprop<" in text
    assert "conv_wgrad<" in text
    check(program, data, state, steps=2, tolerance=LOST["bf16"], precise="bf16")


@pytest.mark.parametrize("precise", ["tf32", "bf16"])
@pytest.mark.parametrize("filters", [24, 48])
def test_tiles_of_an_odd_number_of_columns(filters, precise, monkeypatch):
    """Threads that are left over do nothing, and sums by columns know it."""
    odd = [t for t in conv_tiling.CONV_TILES if t.columns == filters]
    monkeypatch.setattr(conv_tiling, "CONV_TILES", tuple(odd))
    monkeypatch.setattr(conv_tiling, "_fprop_cost", lambda *args: 0.0)
    monkeypatch.setattr(TUNING, "fewest_summed", 1)
    program, data, state = training_step(Stack((1, 8, 8, 16), filters), "float32")
    text = text_of(program, precise)
    assert f"BN = {filters}" in text
    assert "add_columns<" in text
    check(program, data, state, tolerance=LOST[precise], precise=precise)


@pytest.mark.parametrize(
    "layer", ["Dense", "Conv2D", "MaxPooling2D", "BatchNormalization", "Embedding"]
)
@pytest.mark.filterwarnings("ignore:The loss does not depend on")
def test_layers_between_which_arrays_are_bf16(layer, monkeypatch):
    monkeypatch.setattr(TUNING, "bf16_elements", 1)
    case = next(case for case in CASES if case.layer == layer)
    program, data, state = training_step(case, "float32")
    assert "bf16*" in text_of(program, "bf16")
    check(program, data, state, steps=2, tolerance=LOST["bf16"], precise="bf16")


def test_a_largest_element_is_found_again():
    """Its gradient goes where it came from: rounded for a product, it is nowhere."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 5, 5, 2)).astype("float32")
    inner = [layers.Conv2D(4, 3), layers.GlobalMaxPooling2D(), layers.Dense(3)]
    model = models.Sequential([layers.Input(x.shape[1:]), *inner])
    model.compile("sgd", "mse")
    y = rng.normal(size=(3, 3)).astype("float32")
    program, data, state = step_of_model(model, x, y, 3, 3)
    assert "bf16*" in text_of(program, "bf16")
    check(program, data, state, tolerance=LOST["bf16"], precise="bf16")


def test_what_weights_are_updated_with_stays_float32(monkeypatch):
    monkeypatch.setattr(TUNING, "bf16_elements", 1)
    case = next(case for case in CASES if case.layer == "Dense")
    program, _, _ = training_step(case, "float32")
    kernels = build(program, GpuSpec(90, "bf16"), after="rounded-operands").every
    assert any(b.dtype == BF16 for k in kernels for b in k.writes())
    updates = [k for k in kernels if any(b.kind == "state" for b in k.writes())]
    used = [b for k in updates for b in k.reads() if b.kind == "arena"]
    assert used
    assert all(b.dtype != BF16 for b in used)


def test_gradients_are_read_inside_of_their_padded_copies():
    program, data, state = training_step(STACKS[0], "float32")
    kernels = build(program, GpuSpec(), after="rounded-operands").every
    read = [k.right.buffer.name for k in kernels if k.name == "conv_kernel"]
    # The first layer's gradient is nobody's image: it has no padded copy.
    assert [name.startswith("pad") for name in read] == [False, True]
    padded = [b for k in kernels for b in k.writes() if b.name.startswith("pad")]
    assert len({buffer.name for buffer in padded}) == 3, "no array is padded twice"
    check(program, data, state, steps=2, tolerance=2e-3)


def test_what_is_computed_twice_is_kept_where_it_is_ready_first():
    """Zeros for all pads may be filled in long before, in any order."""
    program, data, state = training_step(Stack((16, 12, 12, 8), 32), "float32")
    check(program, data, state, tolerance=2e-3)


@pytest.mark.parametrize("shape", [(16, 32, 24), (48, 784, 40), (144, 48, 20)])
def test_scaled_bytes_stay_bytes(shape):
    program, data, state = scaled_bytes(*shape)
    text = text_of(program, "tf32")
    assert set(re.findall(r"typedef (.*) Left;", text)) == {"unsigned char"}
    check(program, data, state, tolerance=LOST["tf32"], precise="tf32")


@pytest.mark.parametrize("shape", [(16, 30, 24), (5, 32, 24)])
def test_bytes_that_cannot_be_copied_in_chunks_become_floats(shape):
    program, data, state = scaled_bytes(*shape)
    text = text_of(program, "tf32")
    assert ("typedef unsigned char Left" in text) == (shape[1] % 16 == 0)
    check(program, data, state, tolerance=LOST["tf32"], precise="tf32")


def test_bytes_are_multiplied_exactly():
    program, data, state = scaled_bytes(48, 64, 24)
    for name in ("w", "g"):  # what TF32 does not round
        data[name] = np.round(8 * data[name]) / 8
    check(program, data, state, tolerance=2e-6, precise="tf32")
