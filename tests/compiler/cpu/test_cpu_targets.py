"""Code for other processors, and the text of small kernels as it was agreed upon."""

import numpy as np
import pytest
from cpu_checks import compiled, op_program, pure, ran
from folders import GOLDEN
from step_programs import step_of

from ganglion.compiler import reference
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.emit import emit_form, emit_plan, form_of
from ganglion.compiler.cpu.jit import Target, executor, filled
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir import contraction, pointwise, shaping
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS

pytestmark = pytest.mark.usefixtures("listed_zeros")

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

AVX2 = Target("x86-64-v3", triple="x86_64-unknown-linux-gnu")
NEON = Target("generic", "+neon", triple="aarch64-unknown-linux-gnu")


@pytest.fixture(scope="module")
def kernels():
    """Return every kernel of a step of mnist-cnn as text."""
    program, _, _ = step_of("mnist-cnn", rows=128, batch=64)
    modules, _ = emit_plan(build(program))
    return list(modules.values())


@pytest.mark.parametrize(
    ("target", "registers", "absent"),
    [(AVX2, ("ymm", "vfmadd"), "zmm"), (NEON, ("fmla", ".4s"), "ymm")],
    ids=["AVX2", "NEON"],
)
def test_every_kernel_compiles_for(target, registers, absent, kernels):
    text = jit.assembly(kernels, target)
    assert all(register in text for register in registers)
    assert absent not in text
    # From the same code; a few of them, for it is made anew.
    assert jit.object_code(kernels[:3], target).startswith(b"\x7fELF")


@pytest.mark.parametrize("system", ["linux", "darwin", "windows"])
@pytest.mark.parametrize(("family", "target"), [("x86", AVX2), ("arm", NEON)])
def test_the_executor_compiles_for(family, target, system):
    text = jit.assembly([executor(family, system)], target)
    sleeps = {"linux": "syscall", "darwin": "sched_yield", "windows": "SwitchToThread"}
    assert sleeps[system] in text


@pytest.mark.parametrize("names", [{}, {"futex": "1", "more": "2"}])
def test_a_text_file_is_filled_in_completely(names):
    with pytest.raises(KeyError, match=r"sleep_futex.ll has the names \['futex'\]"):
        filled("sleep_futex.ll", **names)


@pytest.mark.skipif(jit.family() != "x86", reason="not an x86 processor")
@pytest.mark.parametrize(
    "name", ["matmul", "conv", "exp", "tanh", "sum", "max_pool", "random_uniform"]
)
def test_avx2_code_runs_here(name, monkeypatch, tmp_path):
    if "+avx2" not in jit.host().features:
        pytest.skip("the processor has no AVX2")
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v3")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    drawn, attrs = OPS[name].domain(np.random.default_rng(0))
    program, data = op_program(OPS[name], drawn, attrs)
    _, expected = ran(reference.compile(program), data, {}, 1)
    _, ours = ran(compiled(program, 2), data, {}, 1)
    np.testing.assert_allclose(ours["y"], expected["y"], rtol=1e-11, atol=1e-11)


def test_avx2_trains_as_avx512_does(monkeypatch, tmp_path):
    """Sums are split into vectors of one width, whatever the machine's."""
    program, data, state = step_of("mnist-mlp", rows=8, batch=4)
    data = {name: data[name] for name in program.data}
    here, _ = ran(compiled(program, 1), data, state, 2)
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v3")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    there, _ = ran(compiled(program, 1), data, state, 2)
    for name, array in here.items():
        np.testing.assert_allclose(there[name], array, rtol=1e-5, atol=1e-6)


# ---- golden texts --------------------------------------------------------------------


def _scaled():
    x = Input("x", (5, 20), "float32")
    return [x], pointwise.maximum(x, pointwise.negative(x))


def _summed():
    x = Input("x", (6, 33), "float32")
    return [x], shaping.sum_(x, axes=(1,))


def _product():
    a, b = Input("a", (3, 4), "float32"), Input("b", (4, 5), "float32")
    return [a, b], contraction.matmul(a, b)


def _skipped():  # three rows of a list are no tile of the text for all sizes
    x, w = Input("x", (3, 17), "float32"), Input("w", (17, 4), "float32")
    return [x, w], contraction.matmul(x, w)


def _transposed():
    x = Input("x", (3, 4), "uint8")
    return [x], shaping.transpose(pointwise.cast(x, dtype="float32"), axes=(1, 0))


@pytest.mark.parametrize("make", [_scaled, _summed, _product, _skipped, _transposed])
def test_small_kernels_have_the_agreed_text(make, request):
    inputs, value = make()
    plan = build(pure(Graph.of("golden", inputs, {"y": value})))
    forms = [form_of(kernel) for kernel in plan.kernels]
    texts = [f"; {list(form.values)}\n{emit_form(form)[1]}" for form in forms]
    ours = f"; {str(plan).replace(chr(10), chr(10) + '; ')}\n" + "\n".join(texts)
    path = GOLDEN / f"{make.__name__[1:]}.ll"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(ours)
    # Changed on purpose? `pytest --update-golden`, and read the difference.
    assert path.read_text() == ours


def test_kernels_share_object_files_on_any_number_of_threads():
    modules, _ = emit_plan(build(step_of("mnist-perceptron", batch=16)[0]))
    texts = [*modules.values(), next(iter(modules.values()))]
    for threads, most in ((1, 1), (3, 6)):
        codes = jit.object_codes(texts, jit.host(), threads)
        assert codes[-1] is codes[0]
        assert len(set(codes)) == min(most, len(modules))
        for name, code in zip(modules, codes, strict=False):
            assert jit.Library(code).address(name)
    with pytest.raises(RuntimeError, match="expected"):
        jit.object_codes(["no text", "of LLVM"], jit.host(), 2)
