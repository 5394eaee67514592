"""The command line of the compilers: what a recipe becomes, and the cache."""

import os
import re
import subprocess
import sys

import pytest
from command_line import here, run

from ganglion import config, recipes
from ganglion.cli import dump
from ganglion.compiler.cuda import driver, emit
from ganglion.compiler.cuda.launches import fused_kernels_of
from ganglion.compiler.cuda.target import GpuSpec

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("--plan", ("plan mnist-mlp.test_step", "arena", "matmul", "all wait")),
        ("--source", ("define void @k", "fma", "<16 x float>")),
        ("--asm", (".globl", "ret")),
    ],
)
def test_dump_prints_what_a_recipe_becomes(form, parts):
    done = here("dump", "mnist-mlp", form, "--step", "test")
    assert done.returncode == 0, done.stderr
    for part in parts:
        assert part in done.stdout


def test_dump_prints_cuda_text_without_a_gpu():
    def dumped(*forms):
        arguments = ("mnist-mlp", "--backend", "cuda", *forms, "--step", "test")
        done = here("dump", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    plan, source = dumped("--plan", "--source").split("\n#define THREADS")
    assert plan.startswith("plan mnist-mlp.test_step")
    kernels = re.findall(r'extern "C" __global__ void.* (\w+)\(', source)
    launched = re.findall(r"// +[a-z]+ +\d+ (\w+): [1-9]\d* blocks", source)
    assert launched
    assert set(launched) == set(kernels)
    assert [launch in plan for launch in launched] == [True] * len(launched)
    assert "all wait" not in plan  # what the CPU's plan says of barriers and threads
    assert "[one thread]" not in plan
    wrong = here("dump", "mnist-mlp", "--backend", "tpu", "--plan")
    assert "choose cpu or cuda" in wrong.stderr


def test_the_plan_for_cuda_is_what_the_gpu_runs():
    """After all of its passes: every kernel of every launch, and its memory."""
    program = dump.program_of(recipes.get("mnist-mlp"), "train", 128)
    text = dump.text_of(program, "plan", "cuda")
    target = GpuSpec(precision=config.precision())
    emission = emit.emit_program(program, target)
    schedule = emission.schedule
    first, *_ = text.splitlines()
    assert (
        f"{len(emission.every)} launches a step, arena {schedule.arena:,} bytes"
        in first
    )
    assert "kernel rounded" in text  # a copy that only tensor cores need
    assert "epilogue: " in text
    assert "prefetch for the next step" in text
    written = [
        buffer.name
        for _, fused in fused_kernels_of(
            [*schedule.once, *schedule.first, *schedule.every]
        )
        for kernel in fused.kernels
        for buffer in kernel.writes()
    ]
    assert [name for name in written if name not in text] == []
    assert "Scaled(" not in text


@pytest.mark.parametrize(
    ("backend", "after", "parts"),
    [
        ("cpu", "one-pass-moments", ("graph mnist-mlp.train_step", "matmul")),
        ("cpu", "fuse", ("plan mnist-mlp.train_step", "matmul for batch")),
        ("cpu", "barriers", ("plan mnist-mlp.train_step", "all wait")),
        ("cuda", "lower", ("plan mnist-mlp.train_step", "matmul for batch")),
        ("cuda", "rounded-operands", ("in every step:", "kernel rounded")),
        ("cuda", "prefetch", ("before the first step:", "in every step:")),
        ("cuda", "launches", ("every  0", "partition 0", "epilogue: ")),
        ("cuda", "memory", ("last ", "not stored: ")),
    ],
)
def test_dump_prints_the_stage_after_any_pass(backend, after, parts):
    done = here("dump", "mnist-mlp", "--plan", "--backend", backend, "--after", after)
    assert done.returncode == 0, done.stderr
    for part in parts:
        assert part in done.stdout


def test_dump_refuses_passes_that_are_not_there():
    wrong = here(
        "dump", "mnist-mlp", "--plan", "--backend", "cuda", "--after", "fusion"
    )
    assert wrong.returncode != 0
    assert "no pass 'fusion' for cuda" in wrong.stderr
    assert all(name in wrong.stderr for name in ("prefetch", "split-k", "memory"))
    other = here("dump", "mnist-mlp", "--plan", "--after", "prefetch")
    assert "no pass 'prefetch' for cpu" in other.stderr
    alone = here("dump", "mnist-mlp", "--source", "--after", "fuse")
    assert "--after PASS is a stage of the --plan" in alone.stderr
    assert "--plan --after prefetch" in here("dump", "--help").stdout


def test_dump_says_what_ptx_needs(monkeypatch):
    for name in ("cuda", "cuda.core"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(driver, "unavailable_reason", lambda: "no GPU here")
    program = dump.program_of(recipes.get("mnist-perceptron"), "predict", 16)
    with pytest.raises(RuntimeError, match=r"NVRTC.*ganglion-nn\[cuda\]"):
        dump.text_of(program, "asm", "cuda")


def test_the_cache_is_shown_and_cleared(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))

    def said(*arguments):
        done = here("cache", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    assert said().startswith("0 compiled programs, 0.0 MB")
    cpu = os.environ | {"GANGLION_BACKEND": "cpu"}
    code = (
        "import numpy as np; from ganglion import Sequential, layers; "
        "Sequential([layers.Dense(2)]).predict(np.zeros((1, 3)), verbose=0)"
    )
    subprocess.run([sys.executable, "-c", code], env=cpu, check=True)
    shown = said()
    assert re.match(r"[1-9]\d* compiled programs", shown)
    assert str(tmp_path / "kernels") in shown
    assert re.match(r"Removed [1-9]\d* compiled programs", said("clear"))
    assert said().startswith("0 compiled programs")
    wrong = here("cache", "clean")
    assert "ganglion cache clear" in wrong.stderr


def test_the_compiler_is_the_default(monkeypatch):
    monkeypatch.delenv("GANGLION_BACKEND", raising=False)
    assert config.backend() == "cpu"
    config.set_backend("auto")
    assert config.backend() == "cpu"
    monkeypatch.setattr(config, "_best_backend", lambda: "numpy")
    assert config.backend() == "numpy"
    info = run("info", small=False)
    assert "works, in use" in info.stdout
