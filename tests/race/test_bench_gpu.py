"""`ganglion bench --device cuda` without a GPU: fakes, and rivals that compute here."""

import numpy as np
import pytest
from bench_runs import _small, fake, result_of  # noqa: F401 (a fixture)
from race_helpers import noise

from ganglion import recipes, utils
from ganglion.race import engines as rivals
from ganglion.race.bench import report, steps
from ganglion.race.engines import Task

RECIPE = recipes.get("mnist-perceptron")


def on_gpu(*engines, **arguments):
    return steps.run(
        RECIPE, list(engines), rounds=2, threads=1, device="cuda", **arguments
    )


def test_engines_are_timed_over_whole_epochs_and_no_processor_is_measured():
    result = on_gpu(fake("ganglion", "fast"), fake("rival", "slow"), precision="tf32")
    ours, rival = result.entries
    assert ours.milliseconds == pytest.approx([1.0] * 2)
    assert (ours.steps, rival.steps) == (200, 50)  # 256 rows are two batches
    assert not result.peak
    assert result.ratio(rival, ours) == pytest.approx(4.0)


def test_bf16_may_differ_more():
    engines = [fake("a", "good"), fake("b", "wrong")]  # one hundredth apart
    assert not on_gpu(*engines, precision="tf32").timed
    assert len(on_gpu(*engines, precision="bf16").timed) == 2


def test_an_engine_that_sees_no_gpu_is_told_of():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = on_gpu(fake("ganglion", "good"), rivals.engine("torch"))
    assert "sees no CUDA device" in result.entries[1].problem
    assert result.entries[0].milliseconds


def test_forms_of_a_gpu_are_others():
    jax = rivals.engine("jax")
    assert jax.forms_on("cpu") == ("jitted step", "scan")
    assert jax.forms_on("cuda") == ("scan",)
    assert rivals.engine("torch").forms_on("cuda") == ("eager",)


def gpu_result(precision, **milliseconds):
    result = result_of(**milliseconds)
    result.device, result.precision = "cuda", precision
    result.gpu, result.peak = "a GPU, driver 1", {}
    return result


def test_the_section_of_a_page_is_replaced_and_the_rest_is_left(tmp_path):
    page = tmp_path / "cuda.md"
    page.write_text(
        f"# CUDA\n\nbefore\n\n{report.GPU_HEADING}\n\nold\n\n## After\n\nend\n"
    )
    results = [
        gpu_result("tf32", ganglion=[0.1] * 3, jax=[0.2] * 3),
        gpu_result("bf16", ganglion=[0.1] * 3, jax=[0.3] * 3),
    ]
    report.write(results, page, "ganglion bench --device cuda")
    text = page.read_text()
    assert text.startswith("# CUDA\n\nbefore\n")
    assert text.endswith("\n## After\n\nend\n")
    assert "old" not in text
    assert "a GPU, driver 1" in text
    assert "| jax: form | 0.200 | 0.200–0.200 | 2.00 | tf32 |" in text
    assert "| jax: form | 0.300 | 0.300–0.300 | 3.00 | bf16 |" in text
    assert "3.00× as fast as the best rival in bf16, jax (form)." in text


@pytest.mark.parametrize(
    ("device", "precision", "told"),
    [("cpu", "bf16", "goes with --device"), ("cuda", "bf61", "Did you mean 'bf16'"),
     ("tpu", None, "choose cpu or cuda")],
)  # fmt: skip
def test_what_cannot_be_asked_for(device, precision, told):
    arguments = {
        "rounds": 1,
        "batch_size": None,
        "threads": 1,
        "each": print,
        "say": print,
    }
    with pytest.raises(ValueError, match=told):
        report.measure([], "", device=device, precision=precision, **arguments)


# ---- rivals ------------------------------------------------------------------------


def task_of(name, rows=64, batch=16, **arguments):
    recipe = recipes.get(name)
    (x, y), _, _ = noise(recipe, rows)
    utils.set_random_seed(0)
    weights = recipes.build(recipe).get_weights()
    return Task(recipes.plain(recipe), weights, x, y, batch, 1, **arguments)


def losses(trainer, *counts):
    results = []
    for count in counts:
        trainer.run(count)
        results.append(trainer.loss())
    return np.array(results)


# XLA takes seconds to compile the larger networks, and 100 MB each that stay.
BF16 = [
    *(("torch", name) for name in ("mnist-mlp", "mnist-cnn", "cifar10-cam")),
    *(("torch_optimized", name) for name in ("mnist-mlp", "mnist-cnn", "cifar10-cam")),
    *(("jax", name) for name in ("mnist-mlp", "mnist-cnn")),
    pytest.param("jax", "cifar10-cam", marks=pytest.mark.more),
]


@pytest.mark.rivals
@pytest.mark.parametrize(("rival", "name"), BF16)
def test_bf16_is_near_and_not_the_same(rival, name):
    pytest.importorskip(rival.partition("_")[0])
    engine = __import__(f"ganglion.race.engines.{rival}", fromlist=["prepare"])
    exact, rounded = (
        losses(engine.prepare(task_of(name, precision=precision), "eager"), 1, 1)
        for precision in ("float32", "bf16")
    )
    np.testing.assert_allclose(rounded, exact, rtol=max(steps.TOLERANCES["bf16"]))
    np.testing.assert_allclose(rounded[0], exact[0], rtol=steps.TOLERANCES["bf16"][0])
    assert (rounded != exact).any()


@pytest.mark.rivals
def test_a_scan_an_epoch_is_the_same_training():
    pytest.importorskip("jax")
    from ganglion.race.engines.jax import JaxTrainer

    here = JaxTrainer(task_of("mnist-mlp"), "scan")
    there = JaxTrainer(task_of("mnist-mlp", device="cuda"), "scan")
    np.testing.assert_allclose(losses(there, 1, 8, 5), losses(here, 1, 8, 5), rtol=1e-4)
    assert set(there._compiled) == {1, 4}  # an epoch has four batches
    order = np.random.default_rng(0).permutation(64)
    np.testing.assert_allclose(there.epoch(order), here.epoch(order), rtol=1e-4)


@pytest.mark.rivals
def test_recordings_are_the_same_training(monkeypatch):
    """A recording is played by doing the steps again."""
    torch = pytest.importorskip("torch")
    from ganglion.race.engines import torch_optimized
    from ganglion.race.engines.torch_optimized import OptimizedTrainer

    class Played:
        def __init__(self, action):
            self.replay = action

    def recorded(self, key, action):
        return self._graphs.setdefault(key, Played(action))

    monkeypatch.setattr(torch.cuda, "Stream", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: None)
    monkeypatch.setattr(torch_optimized.RecordedTrainer, "_recorded", recorded)
    monkeypatch.setattr(torch_optimized, "FEWEST", 2)
    x_test, y_test = (getattr(task_of("mnist-mlp", 32), letter) for letter in "xy")
    task = task_of("mnist-mlp", 72, x_test=x_test, y_test=y_test)
    plain = OptimizedTrainer(task, False)
    ours = torch_optimized.RecordedTrainer(task, False)
    order = np.random.default_rng(0).permutation(72)
    for trainer in (plain, ours):
        trainer.warm_up(order)
    assert [key for key, _ in ours._graphs] == ["rows", "rows"]
    assert ours.epoch(order) == plain.epoch(order)
    assert ours.test() == plain.test()
    for trainer in (plain, ours):
        trainer.reset()
    assert ours.epoch(order) == plain.epoch(order)
