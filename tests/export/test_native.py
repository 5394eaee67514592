"""Machine code: linked alone, it predicts what the model does."""

import re
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from exported_models import Shared, check, link, made, rows_for

import ganglion as keras
from ganglion import layers
from ganglion.compiler.cpu import jit
from ganglion.export import export_model, python_stub
from ganglion.export.targets import MACHINES, machine_of

has_ld = pytest.mark.skipif(
    shutil.which("ld") is None or sys.platform != "linux", reason="ld is not here"
)
more = pytest.mark.more
SMALL = ["lstm", "transformer", "cnn", *(
    pytest.param(name, marks=more) for name in ("odds", "efficient", "text", "cam",
                                                "mlp"))]  # fmt: skip


def loaded(name, folder, **options):
    model, path = made(name), folder / f"{name}.o"
    told = export_model(model, path, **options)
    weights = path.with_suffix(".weights")
    data = weights.read_bytes() if weights.exists() else None
    return model, Shared(link(path), name, model, data), told


@has_ld
@pytest.mark.parametrize("name", SMALL)
def test_models_predict_the_same(name, tmp_path):
    model, shared, told = loaded(name, tmp_path)
    check(model, shared, rows=70)  # a block of rows, and some that are left
    assert "Compiled for native" in str(told)


@more
@has_ld
def test_efficientnet_lite0(tmp_path):
    model = keras.applications.EfficientNetLite0(weights=None)
    export_model(model, tmp_path / "lite.o")
    check(model, Shared(link(tmp_path / "lite.o"), "lite", model), rows=2)


@has_ld
@pytest.mark.parametrize("name", ["efficient", pytest.param("cnn", marks=more)])
def test_a_lesser_machine_and_weights_in_a_file(name, tmp_path):
    if jit.family() != "x86":
        pytest.skip("for x86-64")
    model, shared, _ = loaded(name, tmp_path, target="x86-64-avx2", weights="file")
    check(model, shared, rows=9)


MAGIC = {"aarch64-macos": b"\xcf\xfa\xed\xfe"}
ELF_MACHINES = {"x86-64-avx2": 62, "x86-64-avx512": 62, "aarch64-linux": 183,
                "riscv64": 243, "cortex-m4": 40, "cortex-m7": 40}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", MACHINES)
def test_every_target_compiles(target, tmp_path):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3, activation="softmax")])
    export_model(model, tmp_path / "a.o", target=target)
    code = (tmp_path / "a.o").read_bytes()
    if target in MAGIC:
        assert code.startswith(MAGIC[target])
    else:
        assert code.startswith(b"\x7fELF")
        assert int.from_bytes(code[18:20], "little") == ELF_MACHINES[target]
    if shutil.which("nm") and target not in MAGIC:
        told = subprocess.run(["nm", "-u", tmp_path / "a.o"], capture_output=True)
        assert not told.stdout.split(), "it depends on something"


def test_an_unknown_target_is_refused(tmp_path):
    model = keras.Sequential([keras.Input((6,)), layers.Dense(3)])
    with pytest.raises(ValueError, match="no target 'z80'; choose native, x86-64-avx2"):
        export_model(model, tmp_path / "a.o", target="z80")
    assert not list(tmp_path.iterdir())


def test_functions_of_the_c_library_are_said(tmp_path):
    model = keras.Sequential([keras.Input((6,)), layers.Lambda(keras.ops.arctan)])
    told = export_model(model, tmp_path / "a.o")
    assert re.search(r"calls atanf of the C library: link with -lm", str(told))


# ---- the Python file -----------------------------------------------------------------


def stub_of(name, folder):
    namespace = {"__file__": str(folder / f"{name}.py"), "__name__": name}
    exec((folder / f"{name}.py").read_text(), namespace)
    return namespace


@has_ld
def test_the_python_file_needs_nothing_and_is_safe_in_threads(tmp_path):
    model = made("odds")
    export_model(model, tmp_path / "odds.py")
    assert {p.name for p in tmp_path.iterdir()} == {"odds.py", "libodds.so"}
    predict = stub_of("odds", tmp_path)["predict"]
    arrays, expected = rows_for(model, 70)
    wrong = []

    def compare():
        for _ in range(20):
            views = predict(*arrays)
            for view, wanted in zip(views, expected, strict=True):
                if not np.allclose(np.asarray(view), wanted, atol=1e-5, rtol=0):
                    wrong.append(view)

    threads = [threading.Thread(target=compare) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    # Neither NumPy nor Ganglion is imported.
    script = "import sys, odds; assert not {'numpy', 'ganglion'} & set(sys.modules)"
    subprocess.run([sys.executable, "-Ic", f"import sys; sys.path.insert(0, '.'); "
                    f"{script}"], cwd=tmp_path, check=True)  # fmt: skip


@has_ld
def test_the_python_file_refuses_what_is_no_row(tmp_path):
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    export_model(model, tmp_path / "a.py")
    predict = stub_of("a", tmp_path)["predict"]
    with pytest.raises(ValueError, match=r"type 'f', one behind the other, got .*'d'"):
        predict(np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"rows of shape \(2,\)"):
        predict(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="there are 1 inputs, got 2"):
        predict(b"", b"")
    assert predict(np.zeros((0, 2), np.float32)).tolist() == []
    assert predict(bytes(8)).shape == (1, 1)


def test_without_a_linker_it_says_how_to_link(tmp_path, monkeypatch):
    monkeypatch.setattr(python_stub.shutil, "which", lambda name: None)
    model = keras.Sequential([keras.Input((2,)), layers.Dense(1)])
    told = export_model(model, tmp_path / "a.py")
    assert {p.name for p in tmp_path.iterdir()} == {"a.py", "a.o"}
    assert "No linker is here: link it with `cc -shared" in str(told)
    assert machine_of("native") is machine_of(None)
