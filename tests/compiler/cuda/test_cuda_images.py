"""Image layers within a step, on a GPU emulated by a CPU."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import step_of_model
from cuda_checks import check

from ganglion import config, layers, models, utils

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


def test_images_are_changed_as_the_reference_does(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")
    utils.set_random_seed(0)
    changes = [
        layers.RandomPerspective(scale=0.3, seed=1),
        layers.RandomElasticTransform(seed=2),
        layers.RandomHue(0.5, seed=3),
        layers.RandomGaussianBlur(seed=4),
        layers.MixUp(seed=5),
        layers.CutMix(seed=6),
    ]
    stack = [*changes, layers.Flatten(), layers.Dense(2)]
    model = models.Sequential([layers.Input((8, 9, 3)), *stack])
    model.compile("sgd", "mse")
    x = np.random.default_rng(0).integers(0, 200, (4, 8, 9, 3)).astype("float32")
    y = np.zeros((4, 2), "float32")
    program, data, state = step_of_model(model, x, y, 4, 4)
    check(program, data, state, tolerance=2e-3)
