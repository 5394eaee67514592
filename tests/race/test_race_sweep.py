"""`ganglion race --sweep`: what is refused, what runs, and how it is told."""

from dataclasses import replace

import pytest
from race_helpers import RECIPE, fake, refused, small_race, start  # noqa: F401 (a fixture)
from typer.testing import CliRunner

from ganglion import recipes
from ganglion.cli.app import app
from ganglion.race import figures, machine, results, run_race, settings
from ganglion.race.engines import engine
from ganglion.race.report import markdown, terminal_tables
from ganglion.race.watch import Quiet


def race(folder, *engines, runs=1, before=None, epochs=1, **swept):
    names = tuple(engine.name for engine in engines)
    chosen = settings.Settings(
        RECIPE.name, names, runs, epochs, 16, 1, "cpu", 7, 20.0, sweep=swept
    )
    return run_race.RaceRunner(chosen, engines, folder, Quiet(), "", before).run()


def test_every_combination_is_a_point():
    sweep = settings.parse_sweep(["lr=0.1,0.5", "batch-size=64,128", "seed= 3, 4 ,3"])
    assert sweep == {"lr": [0.1, 0.5], "batch-size": [64, 128], "seed": [3, 4]}
    chosen = settings.choose("mnist-mlp", engines="ganglion", threads=1, sweep=sweep)
    points = settings.points(chosen)
    assert len(points) == 8
    assert points[3].point == {"lr": 0.1, "batch-size": 128, "seed": 4}
    assert points[3].optimizer == {"learning_rate": 0.1}
    assert (points[3].batch_size, points[3].seed_of(2)) == (128, 5)
    assert (chosen.batch_size, chosen.seed) == (64, 3)  # those of the first point
    plain = settings.choose("mnist-mlp", engines="ganglion", threads=1)
    assert settings.points(plain) == [plain]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rate=0.1"], "unknown key 'rate'.*lr, momentum, batch-size, epochs, threads"),
        (["batchsize=3"], "Did you mean 'batch-size'"),
        (["lr"], "write a key and its values, as in lr=0.1,0.5"),
        (["lr=, "], "no value; lr takes numbers above 0"),
        (["lr=0"], "'0' is none of the numbers above 0"),
        (["lr=nan"], "'nan' is none of the numbers"),
        (["lr=0.1,fast"], "'fast' is none of the numbers above 0"),
        (["momentum=1"], "from 0 to below 1"),
        (["batch-size=64.5"], "'64.5' is none of the integers of at least 1"),
        (["epochs=0"], "integers of at least 1"),
        (["seed=-1"], "integers of at least 0"),
        (["lr=0.1", "lr=0.5"], "lr is there twice"),
    ],
)
def test_what_no_race_can_have_is_refused(words, told):
    with pytest.raises(ValueError, match=told):
        settings.parse_sweep(words)


def test_a_sweep_is_checked_against_the_other_options():
    with pytest.raises(ValueError, match="--epochs is swept over: leave --epochs 3"):
        settings.choose("mnist-mlp", epochs=3, sweep={"epochs": [1, 2]})
    most = machine.cores() + 1
    with pytest.raises(ValueError, match=f"--threads {most}: this machine has"):
        settings.choose("mnist-mlp", sweep={"threads": [1, most]})


def test_momentum_of_nothing_looks_nowhere_ahead():
    recipe = recipes.get("cifar10-cam")
    assert recipes.tuned(recipe, {}) == recipe
    assert recipes.tuned(recipe, {"momentum": 0.5}).optimizer[1]["nesterov"]
    assert "nesterov" not in recipes.tuned(recipe, {"momentum": 0.0}).optimizer[1]


def test_each_point_runs_every_engine_and_says_so(tmp_path, capsys):
    engines = fake("ganglion", "good"), fake("rival", "crash once")
    result = race(tmp_path, *engines, runs=2, lr=[0.1, 0.5], seed=[3, 9])
    assert result.complete
    assert result.sweep == {"lr": [0.1, 0.5], "seed": [3, 9]}
    assert result == results.load(tmp_path)
    assert len(result.finished) == 2 * 2 * 4
    groups = figures.groups(result)
    assert len(groups) == 8
    assert groups[1].label == "ganglion (lr 0.1, seed 9)"
    assert [run.seed for run in groups[1].runs] == [9, 10]
    # The same weights and batches where seeds are equal, whatever the rate.
    first = {(run.seed, run.first_losses[0]) for run in result.finished}
    assert len(first) == len({run.seed for run in result.finished}) == 4
    # Rates and seeds do not change how fast a form is: one lockstep for all.
    assert [path.name for path in tmp_path.glob("lockstep*")] == ["lockstep.json"]
    assert (tmp_path / "logs" / "rival-run-2-lr-0.5-seed-9.log").exists()
    failed = "rival (lr 0.1, seed 3), run 1 failed"
    assert failed in "\n".join(terminal_tables.problems(result))
    assert failed in markdown.text(result)
    assert "seed 3 or 9" in markdown.text(result)
    terminal_tables.show(result)
    assert "rival (lr 0.5, seed 9)" in capsys.readouterr().out


def test_a_refused_engine_is_refused_at_each_point(tmp_path):
    engines = fake("ganglion", "good"), fake("rival", "small")
    swept = {"batch-size": [8, 32], "lr": [0.1, 0.2]}
    result = race(tmp_path, *engines, runs=2, **swept)
    refused = [run for run in result.finished if not run.done]
    assert len(refused) == 4
    assert refused[-1].settings == {"batch-size": 32, "lr": 0.2}
    assert len([run for run in result.finished if run.done]) == 8
    names = sorted(path.name for path in tmp_path.glob("lockstep*"))
    assert names == ["lockstep-batch-size-32.json", "lockstep-batch-size-8.json"]


def test_what_is_missing_is_known_by_point(tmp_path):
    engines = fake("ganglion", "good"), fake("rival", "good")
    result = race(tmp_path, *engines, lr=[0.1, 0.5])
    kept = replace(result, finished=result.finished[:3], complete=False)
    again = race(tmp_path, *engines, before=kept, lr=[0.1, 0.5])
    assert again.finished[:3] == result.finished[:3]
    last = again.finished[3]
    assert (last.engine, last.settings) == ("rival", {"lr": 0.5})
    assert len(again.finished) == 4


def test_the_values_reach_the_engine(tmp_path):
    swept = {"lr": [0.1, 0.5], "momentum": [0.0, 0.9], "batch-size": [16, 32]}
    result = race(tmp_path, engine("ganglion-numpy"), **swept)
    assert [run.reason for run in result.finished] == [""] * 8
    losses = {tuple(run.settings.values()): run.first_losses for run in result.finished}
    small = [losses[key] for key in losses if key[2] == 16]
    assert len({losses[0] for losses in small}) == 1  # the first batch before any step
    assert (
        len({losses[1] for losses in small}) == 2
    )  # momentum does nothing in one step
    assert len({losses[2] for losses in small}) == 4
    assert losses[0.1, 0.0, 16][0] != losses[0.1, 0.0, 32][0]


def test_the_command(tmp_path):
    arguments = ["--engines", "ganglion,torch", "--sweep", "lr=0.1,0.5"]
    first = start(
        tmp_path, "mnist-perceptron", *arguments, "--sweep", "epochs=1,2", "--out", "s"
    )
    out, told = first.communicate(timeout=120)
    assert first.returncode == 0, told
    assert "lr 0.5, epochs 2" in told.splitlines()  # a heading while it runs
    assert "ganglion (lr 0.5, epochs 2)" in out
    loaded = results.load(tmp_path / "s")
    assert [len(run.epochs) for run in loaded.finished] == [1, 1, 2, 2] * 2
    assert "--sweep lr=0.1,0.5 --sweep epochs=1,2" in loaded.command
    assert "--epochs" not in loaded.command
    told = refused("--resume", tmp_path / "s", "--sweep", "lr=0.3")
    assert "holds a race with --sweep lr=0.1,0.5 epochs=1,2: leave --sweep" in told
    told = refused("mnist-perceptron", "--sweep", "rate=1", "--out", tmp_path / "t")
    assert told.startswith("--sweep rate=1: unknown key 'rate'")
    assert not (tmp_path / "t").exists()


def test_help_names_the_keys():
    words = CliRunner().invoke(app, ["race", "--help"]).output.replace("\n", " ")
    for key in settings.KEYS:
        assert f"{key}," in words or f"{key}." in words


# ---- precisions --------------------------------------------------------------------


def test_a_race_on_a_gpu_has_rows_for_each_precision(tmp_path):
    engines = (fake("ganglion", "good"), fake("rival", "good"), fake("off", "rounds"))
    names = ",".join(engine.name for engine in engines)
    arguments = {"engines": "ganglion,torch", "threads": 1, "device": "cuda"}
    chosen = settings.choose("mnist-perceptron", **arguments)
    assert chosen.sweep == {"precision": ["tf32", "bf16"]}
    assert "--sweep precision=tf32,bf16" in run_race.command_line(chosen, "x")
    small = {"engines": tuple(names.split(",")), "epochs": 1, "batch_size": 16}
    chosen = replace(chosen, **small, limit=20.0)
    done = run_race.RaceRunner(chosen, engines, tmp_path, Quiet()).run()
    runs = [(run.engine, run.settings["precision"], run.done) for run in done.finished]
    assert ("ganglion", "tf32", True) in runs
    assert ("rival", "bf16", True) in runs
    # A hundredth off: that is much in TF32, and what bf16 rounds.
    assert ("off", "tf32", False) in runs
    assert ("off", "bf16", True) in runs
    assert "rival (precision bf16)" in markdown.text(done)


def test_engines_and_precisions_of_a_gpu():
    chosen = settings.choose("mnist-mlp", threads=1, device="cuda")
    assert {"torch-optimized", "jax", "keras-jax"} <= set(chosen.engines)
    sweep = settings.parse_sweep(["precision=bf16", "lr=0.1"])
    chosen = settings.choose("mnist-mlp", threads=1, device="cuda", sweep=sweep)
    assert [point.precision for point in settings.points(chosen)] == ["bf16"]
    with pytest.raises(ValueError, match="goes with --device cuda"):
        settings.choose("mnist-mlp", threads=1, sweep=sweep)
    with pytest.raises(ValueError, match="'fp8' is none of the names tf32, bf16"):
        settings.parse_sweep(["precision=fp8"])
