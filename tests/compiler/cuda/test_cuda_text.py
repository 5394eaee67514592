"""CUDA text without a GPU: as agreed upon, within limits, compiled for five chips."""

import importlib.util
import re
import sys

import cuda_networks
import numpy as np
import pytest
from cpu_checks import op_program, pure
from folders import GOLDEN
from step_programs import step_of

from ganglion.compiler.cuda import driver, emit, prelude
from ganglion.compiler.cuda.pipeline import build
from ganglion.compiler.cuda.prelude import source
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.cuda.text import THREADS, fill
from ganglion.compiler.ir import contraction, pointwise, shaping
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS

NVRTC = all(
    importlib.util.find_spec(name) for name in ("cuda", "nvidia")
) and importlib.util.find_spec("cuda.core")
SHARED = {75: 64, 80: 163, 89: 99, 90: 227, 100: 227}  # kilobytes of a block
RECIPES = ("mnist-mlp", "mnist-cnn", "cifar10-cam")
ALL = (*RECIPES, *cuda_networks.NETWORKS)


_emissions = {}


def emitted(program, **target):
    """Return a program as text and launches; several tests look at the same one."""
    key = id(program), (spec := GpuSpec(**target))
    if key not in _emissions:
        emission = emit.emit_program(program, spec)
        _emissions[key] = program, emission  # which keeps the id its own
    return _emissions[key][1]


@pytest.fixture(scope="module", autouse=True)
def _forget():
    yield
    _emissions.clear()


@pytest.fixture(scope="module")
def recipes():
    """Return a training step of each recipe."""
    return {name: step_of(name, rows=128, batch=64)[0] for name in RECIPES}


@pytest.fixture(scope="module")
def programs(recipes):
    """Return a training step of each recipe and of other networks."""
    others = {
        name: cuda_networks.step_of(name, batch=64, side=32)[0]
        for name in cuda_networks.NETWORKS
    }
    return recipes | others


# ---- golden texts ------------------------------------------------------------------


def scaled():
    x, b = Input("x", (64, 12), "float32"), Input("b", (12,), "float32")
    wide = shaping.broadcast(b, shape=x.shape)
    return Graph.of("scaled", [x, b], {"y": pointwise.tanh(pointwise.add(x, wide))})


def summed():
    x = Input("x", (40, 24), "float32")
    return Graph.of("summed", [x], {"y": shaping.sum_(x, axes=(0,))})


def product():
    a, b = Input("a", (48, 20), "float32"), Input("b", (20, 16), "float32")
    largest = pointwise.maximum(
        contraction.matmul(a, b), shaping.fill(0, contraction.matmul(a, b))
    )
    return Graph.of("product", [a, b], {"y": largest})


@pytest.mark.parametrize("make", [scaled, summed, product])
def test_text_is_as_agreed_upon(make, request):
    """Delete a file under golden/ and run again to agree upon a new text."""
    emission = emitted(pure(make()))
    text = re.sub(r"k[0-9a-f]{24}", "KERNEL", "\n".join(emission.functions.values()))
    path = GOLDEN / f"cuda_{make.__name__}.cu"
    if not path.exists():
        path.write_text(text)
        pytest.fail(f"{path.name} was missing and is written now: look at it")
    assert text == path.read_text()


# ---- device text -------------------------------------------------------------------


@pytest.mark.parametrize("call", prelude._ENTRY_POINTS)
def test_files_stand_behind_what_they_include(call):
    text = source([f"void kernel() {{ {call}<Shape>(); }}"])
    assert "#include" not in text
    names = [prelude._ENTRY_POINTS[call]]
    while includes := prelude.device_text(names[-1])[0]:
        names += includes
    names += ["common", "machine"]
    offsets = {name: text.index(prelude.device_text(name)[1]) for name in names}
    assert sorted(offsets, key=offsets.get, reverse=True) == names


def test_every_file_of_device_text_is_used():
    text = source([*(f"{call}<" for call in prelude._ENTRY_POINTS), "bfloat16 x;"])
    names = [path.stem for path in prelude._FOLDER.glob("*.cuh")]
    assert names
    assert all(prelude.device_text(name)[1] in text for name in names)


@pytest.mark.parametrize("names", [{}, {"body": "f", "kernel": "g"}])
def test_names_that_are_missing_or_unknown_are_refused(names):
    with pytest.raises(KeyError):
        fill("void $body() {}", **names)


# ---- limits ------------------------------------------------------------------------


@pytest.mark.parametrize("capability", SHARED)
@pytest.mark.parametrize("name", ALL)
@pytest.mark.sampled(3)
def test_launches_keep_within_limits(name, capability, programs):
    emission = emitted(programs[name], capability=capability)
    assert 1 <= THREADS <= 1024
    for call in emission.calls:
        assert 1 <= call.blocks < 2**31
        assert call.shared <= SHARED[capability] * 1024
        assert len(call.buffers) * 8 <= 4096  # bytes of a launch's arguments


@pytest.mark.parametrize("precision", ["tf32", "bf16", "float32"])
@pytest.mark.parametrize("name", ALL)
def test_every_array_of_a_launch_has_memory(name, precision, programs):
    emission = emitted(programs[name], precision=precision)
    elsewhere = {"data", "state", "constant", "result", "step"}
    allocated = emission.workspace.keys() | emission.schedule.offsets.keys()
    buffers = {buffer for call in emission.calls for buffer in call.buffers}
    assert not [
        buffer
        for buffer in buffers
        if buffer.kind not in elsewhere and buffer.key not in allocated
    ]


@pytest.mark.parametrize("name", ALL)
def test_memory_that_lives_at_the_same_time_does_not_overlap(name, programs):
    emission = emitted(programs[name])
    lives = {}
    for number, call in enumerate(emission.every):
        for buffer in call.buffers:
            if buffer.key in emission.schedule.offsets and buffer.kind == "arena":
                start = emission.schedule.offsets[buffer.key]
                first = lives.get(buffer.name, (number,))[0]
                lives[buffer.name] = (first, number, start, start + buffer.nbytes)
    spans = list(lives.values())
    assert spans
    for i, (first, last, start, stop) in enumerate(spans):
        assert stop <= emission.schedule.arena
        assert start % 256 == 0
        for f, la, s, e in spans[:i]:
            together = first <= la and f <= last
            assert not together or stop <= s or e <= start


@pytest.mark.parametrize("precision", ["tf32", "bf16", "float32"])
@pytest.mark.parametrize("name", ALL)
def test_partitions_side_by_side_do_not_need_each_other(name, precision, programs):
    """An emulated GPU runs block after block, and would not notice."""
    steps = emitted(programs[name], precision=precision).schedule
    launches = [*steps.once, *steps.first, *steps.every, *steps.last]
    for launch in launches:
        touched = [
            (
                {b for fused in partition.fused_kernels for b in fused.writes()},
                {b for fused in partition.fused_kernels for b in fused.reads()},
            )
            for partition in launch.partitions
        ]
        for number, (writes, _) in enumerate(touched):
            for other in touched[:number] + touched[number + 1 :]:
                assert not writes & (other[0] | other[1])
    assert any(len(launch.partitions) > 1 for launch in launches)


def test_wide_accesses_are_aligned(recipes):
    """Every array that is read four elements at a time starts at such a place."""
    for name in RECIPES:
        emission = emitted(recipes[name])
        starts = [*emission.schedule.offsets.values(), *emission.workspace.values()]
        assert all(start % 16 == 0 for start in starts)


def test_a_step_has_few_launches(recipes):
    counts = {name: len(emitted(step).every) for name, step in recipes.items()}
    plans = {n: build(p, GpuSpec(), after="fuse") for n, p in recipes.items()}
    kernels = {name: len(plan.kernels) for name, plan in plans.items()}
    assert all(2 * counts[name] <= kernels[name] for name in RECIPES), counts


# ---- compilers ---------------------------------------------------------------------


def ptx(text, capability):
    """Compile by NVRTC itself: cuda.core asks the driver before it makes PTX."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernels.cu", 0, [], [])
    options = [f"--gpu-architecture=compute_{capability}".encode(), b"--std=c++17"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * size
        nvrtc.nvrtcGetProgramLog(program, log)
        pytest.fail(log.decode()[:4000])
    _, size = nvrtc.nvrtcGetPTXSize(program)
    code = b" " * size
    nvrtc.nvrtcGetPTX(program, code)
    return code.decode()


@pytest.mark.slow
@pytest.mark.skipif(not NVRTC, reason="cuda-core and nvidia-cuda-nvrtc not installed")
@pytest.mark.parametrize("capability", SHARED)
def test_kernels_compile_for(capability, recipes):
    emission = emitted(recipes["mnist-mlp"], capability=capability)
    text = source(emission.functions.values())
    code = ptx(text, capability)
    assert f".target sm_{capability}" in code
    assert ("mma.sync" in code) == (capability >= 80)
    assert ("griddepcontrol" in code) == (capability >= 90)


@pytest.mark.slow
@pytest.mark.skipif(not NVRTC, reason="cuda-core and nvidia-cuda-nvrtc not installed")
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("name", cuda_networks.NETWORKS)
def test_networks_compile(name, precision, programs):
    emission = emitted(programs[name], precision=precision)
    assert ptx(source(emission.functions.values()), 90)


@pytest.mark.slow
@pytest.mark.skipif(not NVRTC, reason="cuda-core and nvidia-cuda-nvrtc not installed")
def test_every_op_compiles():
    functions = {}
    for name in sorted(OPS):
        drawn, attrs = OPS[name].domain(np.random.default_rng(0))
        program, _ = op_program(OPS[name], drawn, attrs)
        functions |= emitted(program, precision="bf16").functions
    text = source(functions.values())
    assert ".target sm_90" in ptx(text, 90)


@pytest.mark.slow
@pytest.mark.skipif(not NVRTC, reason="cuda-core and nvidia-cuda-nvrtc not installed")
def test_machine_code_needs_no_gpu():
    emission = emitted(pure(product()))
    text = source(emission.functions.values())
    assert driver.compile_source(text, "sm_90").startswith(b"\x7fELF")


@pytest.mark.skipif(not NVRTC, reason="cuda-core and nvidia-cuda-nvrtc not installed")
def test_the_compiler_is_read_ahead():
    assert driver.read_compiler() > 10e6


def test_a_compiler_that_is_not_there_is_no_error_before_it_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    assert driver.read_compiler() == 0
