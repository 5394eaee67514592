"""Updates of equal layers: each where its own gradient is."""

import cuda_host
import numpy as np
import pytest
from cpu_checks import step_of_model
from cuda_checks import check

from ganglion import config, layers, models, utils
from ganglion.backends import cuda_emit, cuda_run
from ganglion.backends.cuda_apart import FEWEST, apart
from ganglion.backends.cuda_emit import Target
from ganglion.backends.cuda_launches import works_of
from ganglion.plan.kernel import Apply, Buffer, Contract, Load, Loop, View

FLOAT = np.dtype("float32")


def equal_layers():
    """Return a step of Adam for a network with three layers of one size."""
    config.set_backend("numpy")
    utils.set_random_seed(0)
    hidden = [layers.Dense(256, "relu") for _ in range(3)]
    ends = layers.Input((256,)), layers.Dense(3, "softmax")
    model = models.Sequential([ends[0], *hidden, ends[1]])
    model.compile("adam", "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 256)).astype("float32")
    return step_of_model(model, x, rng.integers(0, 3, 8).astype("int32"), 4, 8)


def updated(works):
    """Return which kernels of layers each piece of work updates."""
    written = ({b.name for k in one.guests for b in k.writes()} for one in works)
    return [sorted(n for n in names if n.endswith("/kernel")) for names in written]


def test_a_product_updates_its_own_weights():
    plan = cuda_run.plan_of(equal_layers()[0])
    large = (one for one in plan.kernels if np.prod(one.writes()[0].shape) >= FEWEST)
    assert [len(one.stored) for one in large if one.name == "update"] == [9]
    launches = cuda_emit.schedule_of(plan, Target()).every
    every = [one for _, one in works_of(launches) if isinstance(one.kernel, Contract)]
    found = [names for names in updated(every) if names]
    assert sorted(found) == [[f"sequential/dense{n}/kernel"] for n in ("", "_1", "_2")]


@pytest.mark.skipif(cuda_host.reason() is not None, reason=str(cuda_host.reason()))
def test_it_trains_as_it_should(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    program, data, state = equal_layers()
    check(program, data, state, steps=2, tolerance=1e-3)


def state(name, size=FEWEST):
    return View.whole(Buffer(name, (size,), FLOAT, "state"))


def plus(view, other):
    return Apply(FLOAT, "add", (Load(FLOAT, view), Load(FLOAT, other)))


def loop(*stored, size=FEWEST):
    (expr, target), *more = stored
    return Loop("update", (size,), expr, target, more=tuple(more))


def names(kernels):
    return [[view.buffer.name for _, view in one.stored] for one in kernels]


def test_what_has_nothing_to_do_with_each_other_is_apart():
    a, b, c, d = (state(name) for name in "abcd")
    rate = View(Buffer("rate", (), FLOAT, "state"), (0,))
    mixed = loop((plus(a, rate), a), (plus(b, rate), b), (plus(a, d), c))
    assert names(apart([mixed])) == [["b"], ["a", "c"]]


def test_what_one_writes_and_another_reads_stays_together():
    a, b, c = (state(name) for name in "abc")
    assert names(apart([loop((plus(a, a), a), (plus(b, a), b))])) == [["a", "b"]]
    # The last one has to do with both.
    both = loop((plus(a, a), a), (plus(b, b), b), (plus(a, b), c))
    assert names(apart([both])) == [["a", "b", "c"]]


def test_small_updates_stay_together():
    a, b = state("a", 10), state("b", 10)
    small = loop((plus(a, a), a), (plus(b, b), b), size=10)
    assert list(apart([small])) == [small]
