"""Recurrent layers, attention and sampling: every engine computes the same."""

import functools
import importlib
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from small_sequences import BATCH, NAMES, ROWS, small, weights_of

from ganglion import recipes
from ganglion.race import engines, run_engine, settings
from ganglion.race.engines import Task
from ganglion.race.run_engine import Folders, Job, Start

FORMS = [
    ("ganglion-numpy", "numpy"),
    ("keras", "graph"),
    ("keras-jax", "jitted"),
    ("keras-torch", "eager"),
    ("tensorflow", "loop"),
    ("torch", "eager"),
    ("torch-optimized", "eager"),
    ("jax", "jitted step"),
    ("jax", "scan"),
]


@pytest.fixture(scope="module")
def courses(tmp_path_factory):
    """Return a function that trains a recipe in an engine, in a process of its own."""
    folder = tmp_path_factory.mktemp("sequences")
    chosen = {name: small(name) for name in NAMES}
    starts = {
        name: write_start(recipe, folder / name) for name, recipe in chosen.items()
    }

    @functools.cache
    def course(engine, form, name):
        task = job(chosen[name], starts[name], engine, form)
        with run_engine.open_session(task, form) as asked:
            asked.load()
            assert asked.prepare()["parameters"] == chosen[name].parameters
            return asked.first_losses(4), asked.ask("epoch", "", number=1)

    return course


def write_start(recipe, folder):
    folder.mkdir()
    (x, y), test = recipes.noise(recipe, ROWS), recipes.noise(recipe, 30, 1)
    arrays = {"x": x, "y": y, "x_test": test[0], "y_test": test[1]}
    arrays["orders"] = np.arange(ROWS, dtype="int32")[None]
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    weights = {f"w{i}": weight for i, weight in enumerate(weights_of(recipe))}
    np.savez(folder / "weights.npz", **weights)
    return Start(folder, 1)


def job(recipe, start, name, form):
    chosen = settings.Settings(recipe.name, (name,), 1, 1, BATCH, 1, "cpu", 1)
    chosen = replace(chosen, custom=replace(recipe, shuffle=False))
    folders = Folders(start.folder, start.folder.parent)
    return Job(engines.engine(name), chosen, folders, start, form)


@pytest.mark.rivals
@pytest.mark.slow
@pytest.mark.parametrize("recipe", NAMES)
@pytest.mark.parametrize(("name", "form"), FORMS)
@pytest.mark.sampled(12)
def test_engines_take_the_same_steps(recipe, name, form, courses):
    if reason := engines.engine(name).unavailable_reason():
        pytest.skip(reason)
    ours, our_epoch = courses("ganglion", "fit", recipe)
    theirs, their_epoch = courses(name, form, recipe)
    np.testing.assert_allclose(theirs, ours, rtol=1e-3)
    for what in ("train_loss", "test_loss", "train_accuracy", "test_accuracy"):
        expected = pytest.approx(our_epoch[what], rel=2e-3, abs=1e-4, nan_ok=True)
        assert their_epoch[what] == expected, what


@pytest.mark.rivals
@pytest.mark.parametrize("name", NAMES)
def test_pytorch_gives_back_the_weights_it_was_given(name):
    pytest.importorskip("torch")
    engine = importlib.import_module("ganglion.race.engines.torch")
    recipe = small(name)
    weights = weights_of(recipe)
    task = Task(recipe, weights, *recipes.noise(recipe, BATCH), BATCH, 1)
    trainer = engine.prepare(task, "eager")
    for mine, theirs in zip(weights, trainer.weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", [*recipes.RECIPES, "gru2"])
def test_a_recipe_goes_through_json(name):
    recipe = small(name) if name in NAMES else recipes.get(name)
    sent = recipes.from_data(json.loads(json.dumps(asdict(recipe))))
    assert sent.score == recipe.score
    assert sent.is_noisy == recipe.is_noisy
    if name in NAMES:
        assert recipes.build(sent).count_params() == recipe.parameters


def test_only_sampling_makes_a_recipe_noisy():
    noisy = [name for name in recipes.RECIPES if recipes.get(name).is_noisy]
    assert noisy == ["mnist-vae"]
    chosen = settings.choose("mnist-vae", threads=1)
    assert run_engine.tolerance(chosen) == run_engine.NOISY
    chosen = settings.choose("mnist-rnn", threads=1)
    assert run_engine.tolerance(chosen) == run_engine.TOLERANCE


def test_the_autoencoder_draws_anew_in_every_step():
    recipe = replace(small("mnist-vae"), layers=recipes.get("mnist-vae").layers)
    recipe = replace(recipe, input_shape=(28, 28), batch_size=4)
    x, y = recipes.noise(recipe, 4)
    model = recipes.build(recipe)
    first, second = (model.evaluate(x, y, verbose=0) for _ in range(2))
    assert first != second
    assert first == pytest.approx(second, rel=0.05)


def test_a_model_of_a_recipe_is_saved_and_loaded(tmp_path):
    from ganglion import saving

    for name in ("mnist-lstm", "mnist-vae", "mini-gpt"):
        recipe = small(name)
        x, y = recipes.noise(recipe, 8)
        model = recipes.build(recipe)
        model.save(tmp_path / "model.keras")
        loaded = saving.load_model(tmp_path / "model.keras")
        before, after = (net.evaluate(x, y, verbose=0) for net in (model, loaded))
        np.testing.assert_allclose(after, before, rtol=1e-6)


def test_a_model_is_loaded_where_no_recipe_was_built(tmp_path, monkeypatch):
    from ganglion import saving, serialization
    from ganglion.recipes import building

    path = tmp_path / "model.keras"
    recipes.build(small("mnist-lstm")).save(path)
    monkeypatch.setattr(serialization, "_custom", {})
    building._own.cache_clear()
    with pytest.raises(ValueError, match="Unknown object"):
        saving.load_model(path)
    assert saving.load_model(path, recipes.custom_objects()).count_params()
    building._own.cache_clear()


def test_momentum_is_swept_over_where_there_is_some():
    with pytest.raises(ValueError, match="trained by Adam, which has none"):
        settings.choose("mnist-vae", threads=1, sweep={"momentum": [0.5]})


def test_optimizers_that_no_rival_knows_are_refused():
    recipe = replace(recipes.get("mnist-rnn"), optimizer=("Lion", {}))
    with pytest.raises(NotImplementedError, match="no translation of the optimizer"):
        engines.optimizer(recipe)
    recipe = replace(recipe, optimizer=("SGD", {"learning_rate": 1, "clipnorm": 1}))
    with pytest.raises(NotImplementedError, match="argument of SGD: clipnorm"):
        engines.optimizer(recipe)
