"""All engines of the race take the same steps, in their own words and all their forms.

The convolutional recipe learns at a fiftieth of its rate here. At 0.5 the last bit of
two almost equal pixels, between which a maximum chooses, becomes 1e-3 of the loss in
five steps, between any two engines (docs/race.md). Convolutions are added up plainly
(GANGLION_PRECISE): Winograd's method rounds away a few bits more than the others do.
"""

import functools
import importlib.util
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from folders import SUPPORT

from ganglion import recipes
from ganglion.race import engines, figures, lockstep, run_engine, settings
from ganglion.race.engines import Unavailable
from ganglion.race.run_engine import Folders, Job

ROWS, BATCH, STEPS = 330, 16, 20  # the last batch has ten rows
FORMS = [
    (name, form)
    for name, engine in engines.ENGINES.items()
    for form in engine.forms
    if name != "ganglion"
]
RECIPES = ("mnist-mlp", "mnist-cnn")
TOO_SLOW = ("XLA loop", "scan")  # XLA takes minutes over a loop of convolutions


# Without `--all`, the forms in which an engine differs most from the others, each with
# one recipe: how steps are compiled and repeated shows in the smaller one as well.
# `torch.compile` is not among them: it takes 15 to 30 s for either.
SAMPLE = {
    ("ganglion-numpy", "numpy"): "mnist-mlp",
    ("keras", "graph"): "mnist-cnn",
    ("tensorflow", "loop"): "mnist-cnn",
    ("torch", "eager"): "mnist-cnn",
    ("jax", "jitted step"): "mnist-cnn",
}
CASES = [
    pytest.param(
        *(name, form, recipe),
        marks=() if SAMPLE.get((name, form)) == recipe else pytest.mark.more,
    )
    for name, form in FORMS
    for recipe in RECIPES
]


def digits(recipe):
    from ganglion.datasets import glyphs

    (x, y), (x_test, y_test) = glyphs.load_data(train=ROWS, test=150)
    data = recipes.prepared(recipe, x, y), recipes.prepared(recipe, x_test, y_test)
    return *data, None


@pytest.fixture(scope="module")
def courses(tmp_path_factory):
    """Return a function that runs an engine once in one of its forms on a recipe."""
    folder = tmp_path_factory.mktemp("race")

    @functools.cache
    def course(name, form, recipe):
        return run(job_of(folder, recipes.get(recipe), name, form))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GANGLION_PRECISE", "1")
        patch.setattr(recipes, "load", digits)
        yield course


def job_of(folder, recipe, name, form, device="cpu"):
    data = folder / recipe.name
    data.mkdir(exist_ok=True)
    rows, _ = run_engine.write_data(recipe, data)
    start = run_engine.write_start(recipe, 1, 2, rows, data / "start")
    chosen = settings.Settings(recipe.name, (name,), 1, 2, BATCH, 1, device, 1)
    if recipe.name == "mnist-cnn":
        chosen = replace(chosen, optimizer={"learning_rate": 0.01})
    return Job(engines.engine(name), chosen, Folders(data, folder), start, form)


def run(job):
    """Return the first losses and two epochs of a job."""
    with run_engine.open_session(job, job.form) as asked:
        asked.load()
        prepared = asked.prepare()
        assert prepared["parameters"] == job.settings.full_recipe.parameters
        losses = asked.first_losses(STEPS)
        return losses, [asked.ask("epoch", "", number=number) for number in (1, 2)]


@pytest.mark.rivals
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form", "recipe"), CASES)
def test_the_first_steps_and_two_epochs_are_the_same(recipe, name, form, courses):
    engine = engines.engine(name)
    if engine.unavailable_reason():
        pytest.skip(engine.unavailable_reason())
    if form.startswith("compiled") and not any(map(shutil.which, ("g++", "clang++"))):
        pytest.skip("torch.compile needs a C++ compiler")
    if recipe == "mnist-cnn" and form in TOO_SLOW:
        pytest.skip("XLA takes minutes over a loop of convolutions on a CPU")
    ours, our_epochs = courses("ganglion", "fit", recipe)
    theirs, their_epochs = courses(name, form, recipe)
    np.testing.assert_allclose(theirs, ours, rtol=1e-3)
    for mine, other in zip(our_epochs, their_epochs, strict=True):
        assert set(mine) == set(other)
        for what in ("train_loss", "test_loss"):
            assert other[what] == pytest.approx(mine[what], rel=1e-2), what
        for what in ("train_accuracy", "test_accuracy"):
            assert other[what] == pytest.approx(mine[what], abs=0.02), what


@pytest.mark.rivals
@pytest.mark.slow
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_the_first_steps_on_a_gpu(name, form, courses, tmp_path):
    engine = engines.engine(name)
    if engine.unavailable_reason() or name == "ganglion-numpy":
        pytest.skip(engine.unavailable_reason() or "NumPy knows no GPU")
    if not shutil.which("nvidia-smi"):
        pytest.skip("there is no GPU; that it is named is tested below")
    ours, _ = courses("ganglion-numpy", "numpy", "mnist-mlp")
    job = job_of(tmp_path, recipes.get("mnist-mlp"), name, form, "cuda")
    try:
        theirs, _ = run(job)
    except Unavailable as reason:
        pytest.skip(str(reason))
    np.testing.assert_allclose(theirs, ours, rtol=1e-2)  # TF32 has ten bits


DTYPES = ("float32", lockstep.EXACT)
FEWER = {24: 4, 48: 8, 512: 16}  # filters and units
CNN = recipes.get("mnist-cnn")
SMALL = replace(
    CNN,
    name="small-cnn",
    layers=tuple(
        (kind, {k: FEWER.get(v, v) if k in ("filters", "units") else v
                for k, v in arguments.items()})
        for kind, arguments in CNN.layers
    ),
    optimizer=("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    parameters=3_258,
)  # fmt: skip


@pytest.fixture(scope="module")
def small_course(tmp_path_factory):
    """Return a function that takes the first steps of the small network."""
    folder = tmp_path_factory.mktemp("small")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "load", digits)
        rows, _ = run_engine.write_data(SMALL, folder)
    start = run_engine.write_start(SMALL, 1, 1, rows, folder / "start")

    @functools.cache
    def course(name):
        """Return the losses by dtype; one process takes the steps in both."""
        chosen = settings.Settings(SMALL.name, (name,), 1, 1, BATCH, 1, "cpu", 1)
        engine, folders = engines.engine(name), Folders(folder, folder)
        job = Job(engine, replace(chosen, custom=SMALL), folders, start)
        job = replace(job, form=engine.forms[0])
        losses = {}
        with run_engine.open_session(job, "both") as asked:
            asked.load()
            for dtype in DTYPES:
                kind = replace(job, settings=replace(job.settings, dtype=dtype))
                asked = run_engine.Session(asked.process, kind)
                assert asked.prepare()["parameters"] == SMALL.parameters
                losses[dtype] = asked.first_losses(STEPS)
        return losses

    return course


@pytest.mark.rivals
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in engines.ENGINES if name != "ganglion"]
)
@pytest.mark.sampled(6)
def test_where_float32_parts_float64_does_not(name, small_course):
    """At the recipe's own rate, with momentum, pooling and batch norm."""
    if reason := engines.engine(name).unavailable_reason():
        pytest.skip(reason)
    both = small_course("ganglion"), small_course(name)
    far = {
        dtype: figures.distance(losses[dtype] for losses in both) for dtype in DTYPES
    }
    assert far[lockstep.EXACT] < 1e-9
    # Ganglion without shortcuts may have the very same bits.
    assert far[lockstep.EXACT] <= 1e-3 * far["float32"]


@pytest.mark.rivals
@pytest.mark.parametrize("name", ["keras", "tensorflow", "torch", "jax"])
def test_a_device_that_is_not_there_is_named(name, tmp_path):
    engine = engines.engine(name)
    if engine.unavailable_reason():
        pytest.skip(engine.unavailable_reason())
    if shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU")
    recipe = recipes.get("mnist-perceptron")
    rng = np.random.default_rng(0)
    for part in ("x", "x_test"):
        np.save(tmp_path / part, rng.integers(0, 9, (32, 28, 28)).astype("uint8"))
        np.save(
            tmp_path / part.replace("x", "y"), np.eye(10, dtype="float32")[[0] * 32]
        )
    start = run_engine.write_start(recipe, 1, 1, 32, tmp_path)
    chosen = settings.Settings(recipe.name, (name,), 1, 1, 16, 1, "cuda", 1)
    place = Folders(tmp_path, tmp_path)
    job = Job(engine, chosen, place, start, engine.forms[0])
    with run_engine.open_session(job, "refused") as asked:
        asked.load()
        with pytest.raises(Unavailable, match="sees no"):
            asked.prepare()


@pytest.mark.rivals
@pytest.mark.slow
def test_the_command_for_real(tmp_path):
    """Tables, results.json, results.md and report.html of a small race."""
    import subprocess
    import sys

    from ganglion.race import results

    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    done = subprocess.run(
        [
            *(sys.executable, str(SUPPORT / "cli_small.py"), "race"),
            *("mnist-perceptron", "--engines", "ganglion,torch"),
            *("--runs", "1", "--epochs", "2", "--threads", "1", "--out", "here"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SMALL_ROWS": "600"},
    )
    assert done.returncode == 0, done.stderr
    loaded = results.load(tmp_path / "here")
    assert loaded.complete
    ours, theirs = loaded.finished
    assert ours.done
    assert theirs.done
    assert theirs.accuracy == pytest.approx(ours.accuracy, abs=1e-6)
    assert loaded.versions["torch"] in (tmp_path / "here" / "results.md").read_text()
    assert "<html" in (tmp_path / "here" / "report.html").read_text()
    assert "torch: eager" in done.stdout
