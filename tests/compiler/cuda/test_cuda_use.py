"""`fit` and its kin on the CUDA backend, on an emulated GPU."""

import cuda_host
import cuda_use
import pytest
from cuda_checks import play_gpu
from cuda_recorder import Recorder

from ganglion.compiler.cuda import backend
from ganglion.compiler.cuda.memory import Memory

pytest.importorskip("h5py")
pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)


@pytest.fixture(autouse=True)
def _played(tmp_path, monkeypatch):
    play_gpu(monkeypatch, tmp_path, "float32")


@pytest.mark.parametrize("check", cuda_use.ANYWHERE, ids=lambda case: case.__name__)
def test_use(check):
    check("numpy")


def test_no_room_leaves_a_usable_model(monkeypatch):
    model, driver = cuda_use.model_of(), Recorder(room=512)
    memory = Memory(driver)
    monkeypatch.setattr(backend, "memory", lambda: memory)
    before, told = model.get_weights(), []
    for number in range(24):  # more each time, until there is room for everything
        driver.room = 512 * (number + 1)
        try:
            cuda_use.train(model, 1)
            break
        except MemoryError as error:
            told.append(str(error))
            cuda_use.equal(model.get_weights(), before)
    assert driver.of("launch")
    for what in ("a program's own memory", "the array '", "within a step"):
        assert any(what in message for message in told), told
