"""Options and environment variables: out of reason is refused by name, at once."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from folders import ROOT
from typer.testing import CliRunner

import ganglion
from ganglion import config
from ganglion.cli.app import app
from ganglion.compiler.cpu import jit


def refused(*arguments):
    """Return what is said of a command line that is refused when it is read."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 2, (done.output, done.exception)
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    "line",
    [
        "train mnist-mlp --epochs -1",
        "train mnist-mlp --epochs 0",
        "train mnist-mlp --batch-size 0",
        "train mnist-mlp --batch-size -5",
        "train mnist-mlp --threads 0",
        "train mnist-mlp --threads -2",
        "train mnist-mlp --threads 1000000000",
        "train mnist-mlp --seed -1",
        "train mnist-mlp --seed 4294967296",
        "train --test -1",
        "train --test 1.5",
        "train --test nan",
        "train --test inf",
        "train --validation -0.1",
        "train --validation 7.5",
        "train --size 0",
        "train --size 3x",
        "train --color red",
        "train --fit squeeze",
        "train --fine-tune -1",
        "train --backend tpu",
        "train --log loud",
        "race mnist-mlp --epochs 0",
        "race mnist-mlp --runs 0",
        "race mnist-mlp --batch-size -1",
        "race mnist-mlp --threads 0",
        "race mnist-mlp --limit 0",
        "race mnist-mlp --limit -3",
        "race mnist-mlp --limit nan",
        "race mnist-mlp --memory 0",
        "race mnist-mlp --memory -1",
        "race mnist-mlp --seed -1",
        "race mnist-mlp --device tpu",
        "race --test 2.5",
        "race --size 0x4",
        "race --fit squeeze",
        "bench --rounds 0",
        "bench --batch-size 0",
        "bench --threads 0",
        "bench --device tpu",
        "dump mnist-mlp --batch-size 0",
        "dump mnist-mlp --batch-size -1",
        "dump mnist-mlp --step sideways",
        "dump mnist-mlp --backend tpu",
        "cam m.keras --limit 0",
        "cam m.keras --method magic",
    ],
)
def test_a_value_out_of_reason_is_refused_by_its_option(line):
    option = re.findall(r"--[a-z-]+", line)[-1]
    assert f"Invalid value for '{option}'" in refused(*line.split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("bench --augment --write page.md", "--write"),
        ("bench --augment --precision bf16", "--precision"),
        ("train --images photos --fine-tune 2", "--fine-tune goes with --pretrained"),
        ("race --images photos --pretrained --memory 4", "--pretrained goes with"),
    ],
)
def test_an_option_that_nobody_would_look_at_is_refused(line, told):
    assert told in refused(*line.split())


# ---- the program ---------------------------------------------------------------------


def python(*arguments, **variables):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )


def test_the_version_is_told():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"ganglion {ganglion.__version__}\n")


def test_the_package_runs_as_the_command():
    done = python("-m", "ganglion", "--version")
    assert done.stdout == f"ganglion {ganglion.__version__}\n"
    wrong = python("-m", "ganglion", "train", "mnist-mlp", "--epochs", "-1")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Usage: ganglion train ")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("train mnist-p", {"mnist-perceptron"}),
        ("dump mnist-c", {"mnist-cnn"}),
        ("bench mnist-mlp cifar", {"cifar10-cam"}),
        ("race mnist-mlp --engines ganglion,ja", {"ganglion,jax"}),
        ("bench --against keras-", {"keras-jax", "keras-torch"}),
        ("race --sweep mo", {"momentum="}),
        ("data fetch g", {"glyphs"}),
        ("cam m.keras --data fash", {"fashion_mnist"}),
        ("train --backend cu", {"cuda"}),
        ("predict m.keras --format c", {"csv"}),
    ],
)
def test_shells_complete_names(words, names):
    line = f"ganglion {words}"
    asked = {
        "_GANGLION_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split()) - 1),
    }
    done = CliRunner().invoke(app, [], prog_name="ganglion", env=asked)
    assert set(done.output.split()) == names


def test_completion_can_be_installed(tmp_path, monkeypatch):
    shells = pytest.importorskip("shellingham")  # by which Typer finds out the shell
    monkeypatch.setattr(shells, "detect_shell", lambda *_: ("bash", "/bin/bash"))
    done = CliRunner().invoke(
        app, "--install-completion", prog_name="ganglion", env={"HOME": str(tmp_path)}
    )
    assert done.exit_code == 0, done.output
    script = tmp_path / ".bash_completions" / "ganglion.sh"
    assert "_GANGLION_COMPLETE=complete_bash" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()


# ---- variables -----------------------------------------------------------------------


@pytest.fixture
def no_choices(monkeypatch):
    """Leave all choices to the environment, and nothing in that."""
    for name in config.ENVIRONMENT:
        if name != "GANGLION_HOME":
            monkeypatch.delenv(name, raising=False)
    for name in ("backend", "threads", "pin", "precise", "precision"):
        monkeypatch.setitem(config._choices, name, None)
    return monkeypatch


@pytest.mark.parametrize("text", ["", " ", "0", "-3", "abc", "1e9", "2.0", "9" * 10])
def test_a_number_of_threads_out_of_reason_is_refused(text, no_choices):
    no_choices.setenv("GANGLION_THREADS", text)
    with pytest.raises(ValueError, match="GANGLION_THREADS must be an integer"):
        config.threads()
    model = ganglion.Sequential([ganglion.Input((2,)), ganglion.layers.Dense(1)])
    with pytest.raises(ValueError, match="GANGLION_THREADS"):  # however small it is
        model.predict(np.zeros((1, 2)), verbose=0)


def test_more_threads_than_cores_are_taken(no_choices):
    no_choices.setenv("GANGLION_THREADS", " 32 ")
    assert config.threads() == 32
    config.set_threads(64)
    assert config.threads() == 64
    with pytest.raises(ValueError, match="threads must be"):
        config.set_threads(10**6)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("GANGLION_BACKEND", "cpv", "GANGLION_BACKEND: Unknown backend 'cpv'"),
        ("GANGLION_PRECISION", "fp8", "GANGLION_PRECISION: Unknown precision 'fp8'"),
        ("GANGLION_PRECISE", "maybe", "GANGLION_PRECISE must be one of"),
        ("GANGLION_PIN", "2", "GANGLION_PIN must be one of"),
        ("GANGLION_DEBUG", "much", "GANGLION_DEBUG must be one of"),
        ("GANGLION_VERIFY", "some", "GANGLION_VERIFY must be one of"),
        ("GANGLION_THREADS", "", "GANGLION_THREADS must be"),
    ],
)
def test_every_variable_is_refused_by_name_before_anything_is_compiled(
    name, text, told, no_choices
):
    no_choices.setenv(name, text)
    with pytest.raises(ValueError, match=told):
        config.check_environment()
    model = ganglion.Sequential([ganglion.Input((2,)), ganglion.layers.Dense(1)])
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match=told):
        model.fit(np.zeros((1, 2)), np.zeros((1, 1)), verbose=0)


def test_the_command_line_refuses_variables_in_a_line():
    done = python("-m", "ganglion", "recipes", GANGLION_THREADS="abc")
    assert done.returncode == 1
    assert done.stderr.startswith("ganglion: GANGLION_THREADS must be")
    assert len(done.stderr.splitlines()) == 1


def test_switches_are_read_alike(no_choices):
    for read, name, default in (
        (config.precise, "GANGLION_PRECISE", False),
        (config.pin_threads, "GANGLION_PIN", True),
        (config.debugs, "GANGLION_DEBUG", False),
        (config.verifies_passes, "GANGLION_VERIFY", False),
    ):
        for text in ("1", "yes", "On", " true "):
            no_choices.setenv(name, text)
            assert read()
        for text in ("0", "no", "OFF", "false"):
            no_choices.setenv(name, text)
            assert not read()
        no_choices.setenv(name, "")
        assert read() is default


@pytest.mark.skipif(jit.family() != "x86", reason="levels are of x86-64")
def test_a_processor_that_this_one_is_not_is_refused(monkeypatch):
    pytest.importorskip("llvmlite")
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v2")
    assert jit.host().cpu == "x86-64-v2"
    monkeypatch.setenv("GANGLION_CPU", "pentium-99")
    with pytest.raises(ValueError, match="GANGLION_CPU=pentium-99 is not one of"):
        jit.host()
    monkeypatch.setitem(jit._LEVELS, "x86-64-v9", ("avx4096",))
    monkeypatch.setenv("GANGLION_CPU", "x86-64-v9")
    with pytest.raises(ValueError, match="asks for more than what this machine has"):
        jit.host()


def test_info_shows_what_is_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    assert f"kept in      {tmp_path}" in CliRunner().invoke(app, ["info"]).output
    for name in ("datasets/a", "datasets/b", "kernels/c"):
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "home" / name).write_bytes(bytes(2_000_000))
    # What `info` asks the machine itself may have been compiled just now.
    kernels = [
        path for path in (tmp_path / "home/kernels").rglob("*") if path.is_file()
    ]
    told = CliRunner().invoke(app, ["info"]).output
    assert "  datasets   4.0 MB in 2 files" in told
    assert f"  kernels    2.0 MB in {len(kernels)} files" in told


def test_every_variable_is_in_the_table():
    """In the code, in `config.ENVIRONMENT` and in the docs, with the same names."""
    named = set()
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r"(?<![A-Z_])GANGLION_[A-Z_]+", text))
    assert named == set(config.ENVIRONMENT)
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(GANGLION_\w+)`", page, re.M) == sorted(named)
