"""Networks of other kinds than the recipes', on a CPU that plays a GPU."""

import cuda_host
import pytest
from cuda_checks import check
from cuda_networks import NETWORKS, step_of

from ganglion import config, utils
from ganglion.backends import cuda_channels

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


@pytest.fixture(autouse=True)
def small_windows_are_written_out(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    monkeypatch.setattr(cuda_channels, "FEWEST_PLACES", 1)
    config.set_backend("numpy")
    utils.set_random_seed(0)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_step_is_what_it_means(name):
    program, data, state = step_of(name, batch=3, side=8)
    check(program, data, state, steps=2, tolerance=2e-3, precise="float32")


@pytest.mark.parametrize("name", NETWORKS)
def test_on_tensor_cores(name):
    program, data, state = step_of(name, batch=3, side=8)
    check(program, data, state, tolerance=2e-1, precise="bf16")
