"""The command line, run as a user runs it."""

import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from command_line import command, here, run, weights_of

import ganglion
from ganglion import recipes
from ganglion.datasets import glyphs

LINE = re.compile(
    r"loss: \d\.\d{4} / \d\.\d{4}    accuracy: \d\.\d{4} / \d\.\d{4}    "
    r"step \d+  \d+\.\d\d sec"
)


def test_steps_log_has_the_published_form():
    done = run("train", "mnist-perceptron", "--epochs", 2, "--log", "steps")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert "step 2" in lines[1]
    assert "7,850 parameters" in done.stderr
    assert "Published: 0.9089 TensorFlow (14 s)" in done.stderr


def test_keras_log_has_summary_and_bar():
    done = run("train", "mnist-mlp", "--epochs", 1)
    assert done.returncode == 0, done.stderr
    assert 'Model: "mnist-mlp"' in done.stdout
    assert "Total params: 669,706 (2.55 MB)" in done.stdout
    assert re.search(r"5/5 ━{20} \d+s \S+/step - accuracy: 0\.\d{4}", done.stdout)


@pytest.mark.parametrize("option", ["--augment", "--no-augment"])
def test_a_recipe_changes_its_images_or_leaves_them(option):
    # The numbers of other tests: what is compiled for one is there for all.
    words = ("train", "cifar10-cam", option, "--batch-size", 20, "--epochs", 1)
    done = run(*words, "--threads", 1, SMALL_ROWS="60")
    assert done.returncode == 0, done.stderr
    left = option == "--no-augment"
    assert ("random_flip" in done.stdout) is not left
    assert ("Images are left as they are" in done.stderr) is left
    assert "290,090 parameters" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--test", 100, "--size", 32), "--test, --size: for --images FOLDER"),
        (("--fit", "pad"), "--fit: for --images FOLDER"),
        (("--fine-tune", 2), "--fine-tune: for --images FOLDER"),
        (("--no-augment", "--resume", "c.keras"), "c.keras keeps what it was begun"),
    ],
)
def test_train_refuses_what_a_recipe_cannot_follow(arguments, named, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = here("train", "cifar10-cam", *arguments)
    assert done.returncode == 2
    assert named in done.stderr


def test_json_log_is_one_object_an_epoch():
    done = run("train", "mnist-perceptron", "--epochs", 2, "--log", "json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert {"loss", "val_loss", "accuracy", "val_accuracy"} <= set(rows[0])


def test_seeds_repeat_and_differ():
    log = ("train", "mnist-perceptron", "--epochs", 1, "--log", "json", "--seed")
    first, again, other = (json.loads(run(*log, s).stdout) for s in (1, 1, 2))
    for row in (first, again, other):
        row.pop("seconds")
    assert first == again
    assert first != other


def test_ctrl_c_saves_and_the_resumed_run_equals_an_undisturbed_one(tmp_path):
    env = {"SMALL_ROWS": "20000", "GANGLION_THREADS": "1"}
    full_path, part = tmp_path / "whole.keras", tmp_path / "part.keras"
    options = ("train", "mnist-perceptron", "--epochs", 60, "--log", "json")
    assert run(*options, "--save", full_path, **env).returncode == 0
    process = subprocess.Popen(
        command(*options, "--save", part),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )
    process.stdout.readline()  # the first epoch is over
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    stopped = re.search(r"Stopped in epoch (\d+) of 60", errors)
    assert stopped, errors
    assert 2 <= int(stopped[1]) < 60
    assert f"--epochs 60 --resume {part}" in errors
    assert run(*options, "--resume", part, "--save", part, **env).returncode == 0
    for a, b in zip(weights_of(full_path), weights_of(part), strict=True):
        np.testing.assert_array_equal(a, b)


def test_ctrl_c_without_save_says_that_nothing_was_kept():
    process = subprocess.Popen(
        command("train", "mnist-mlp", "--epochs", 500, "--log", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Nothing was saved; give --save FILE" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "mnist-mpl"), "'mnist-mpl'. Did you mean 'mnist-mlp'"),
        (("train", "mnist-mlp", "--log", "loud"), "choose keras, steps or json"),
        (("train", "mnist-mlp", "--backend", "nunpy"), "Unknown backend 'nunpy'"),
        (("train", "mnist-mlp", "--save", "x.h5"), "must end in .keras"),
        (("train", "mnist-mlp", "--save", "no/x.keras"), "does not exist"),
        (("train", "mnist-mlp", "--resume", "no.keras"), "no.keras"),
        (("train", "mnist-mlp", "--threads", "0"), "at least 1"),
        (("data", "fetch", "minst"), "mnist"),
        (("data", "grab"), "ganglion data fetch NAME"),
        (("dump", "mnist-mlp"), "--graph"),
    ],
)
def test_mistakes_are_named_in_a_line(arguments, message):
    as_program = arguments[-1] in ("mnist-mpl", "loud")  # one each of both kinds
    done = (run if as_program else here)(*arguments)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.replace("│", " ").split()), done.stderr
    assert "Traceback" not in done.stderr


def test_resuming_another_recipe_is_refused(tmp_path):
    path = tmp_path / "p.keras"
    saved = run("train", "mnist-perceptron", "--epochs", 1, "--save", path)
    assert saved.returncode == 0, saved.stderr
    done = run("train", "mnist-mlp", "--resume", path)
    assert done.returncode == 1
    assert "holds the model 'mnist-perceptron', not 'mnist-mlp'" in done.stderr


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_dump_prints_the_whole_step(name):
    done = here("dump", name, "--graph")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"graph {name}.train_step")
    assert "gather(" in done.stdout
    assert "return " in done.stdout
    assert ("shuffle(" in done.stdout) == recipes.get(name).shuffle


@pytest.mark.parametrize("name", recipes.RECIPES)
def test_recipes_have_the_published_numbers_of_parameters(name):
    recipe = recipes.get(name)
    assert recipes.build(recipe).count_params() == recipe.parameters


def test_listings(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    listed = here("recipes")
    assert all(name in listed.stdout for name in recipes.RECIPES)
    info = here("info")
    assert "numpy" in info.stdout
    assert "works" in info.stdout
    assert ganglion.__version__ in info.stdout
    assert "kept in" in info.stdout
    data = here("data")
    assert "glyphs" in data.stdout
    assert "GANGLION_HOME" in data.stdout


@pytest.mark.parametrize("name", ["train", "recipes", "data", "dump", "info"])
def test_every_help_has_an_example(name):
    done = here(name, "--help")
    assert done.returncode == 0
    assert "Example" in done.stdout
    assert "ganglion " + name in done.stdout


@pytest.mark.slow
def test_without_mnist_the_first_line_says_so_and_glyphs_take_its_place(
    tmp_path, monkeypatch
):
    few = glyphs._draw(600, 200, 0)  # as it would draw 70,000
    monkeypatch.setattr(glyphs, "_default_set", lambda: few)
    tools = tmp_path / "bin"
    tools.mkdir()
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tools))  # no npm
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # no network
    done = here("train", "mnist-perceptron", "--epochs", 1, "--log", "steps")
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("MNIST cannot be had here; training on glyphs"), first
    assert LINE.fullmatch(done.stdout.strip())
