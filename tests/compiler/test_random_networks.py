"""Networks drawn at random: what compilers make of them is what the graphs mean."""

import cpu_checks
import cuda_checks
import cuda_host
import pytest
from random_networks import step_of

from ganglion import config

SEEDS = range(16)


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")


@pytest.mark.parametrize("seed", SEEDS)
def test_on_a_cpu(seed):
    program, data, state = step_of(seed)
    cpu_checks.check(program, data, state, rtol=2e-3, atol=2e-3)


@pytest.mark.skipif(cuda_host.reason() is not None, reason=str(cuda_host.reason()))
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.sampled(2)
def test_on_an_emulated_gpu(seed):
    program, data, state = step_of(seed)
    cuda_checks.check(program, data, state, tolerance=2e-3, precise="float32")
