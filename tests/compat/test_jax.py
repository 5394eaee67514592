"""The thin `jax` of scripts with KERAS_BACKEND=jax."""

from __future__ import annotations

import functools
import subprocess
import sys

import numpy as np
import pytest
from folders import ROOT

import ganglion as keras
from ganglion.compat.jax import namespaces

SCRIPT = """
import os
os.environ["KERAS_BACKEND"] = "jax"
import numpy as np
import keras
import jax
import jax.numpy as jnp
from jax import random

assert keras.backend.backend() == keras.config.backend() == "jax"
x = np.linspace(-1, 1, 48).reshape(12, 4).astype("float32")
y = x.sum(1, keepdims=True)
layers = [keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(1)]
model = keras.Sequential(layers)
loss_fn, optimizer = keras.losses.MeanSquaredError(), keras.optimizers.Adam(0.1)
start = model.get_weights()

def loss_and_updates(trained, fixed, x, y):
    y_pred, fixed = model.stateless_call(trained, fixed, x, training=True)
    return loss_fn(y, y_pred), fixed

both = jax.value_and_grad(loss_and_updates, has_aux=True)

@jax.jit
def train_step(state, data):
    trained, fixed, slots = state
    (loss, fixed), grads = both(trained, fixed, *data)
    trained, slots = optimizer.stateless_apply(slots, grads, trained)
    return loss, (trained, fixed, slots)

optimizer.build(model.trainable_variables)
groups = model.trainable_variables, model.non_trainable_variables, optimizer.variables
state = tuple([v.value for v in group] for group in groups)
losses = []
for begin in (0, 6):
    batch = jnp.array(x[begin : begin + 6]), jnp.array(y[begin : begin + 6])
    loss, state = train_step(state, batch)
    losses.append(float(loss))
model.set_weights(start)
model.compile(keras.optimizers.Adam(0.1), "mse")
history = model.fit(x, y, batch_size=6, shuffle=False, verbose=0)
assert np.isclose(np.mean(losses), history.history["loss"][0], rtol=1e-5), losses
assert random.normal(random.PRNGKey(0), (2,)).shape == (2,)
try:
    jax.sharding.Mesh
except AttributeError as error:
    print(error)
"""


def test_a_script_for_jax_trains_as_fit_does(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    run = subprocess.run(
        [sys.executable, "-m", "ganglion", str(path)],
        env={"PYTHONPATH": str(ROOT / "src"), "GANGLION_BACKEND": "numpy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("jax.sharding: one device trains here")


def test_rows_and_loops():
    find = namespaces.find
    x = np.arange(6, dtype="float32").reshape(3, 2)
    np.testing.assert_array_equal(find("vmap")(lambda row: row * 2)(x), 2 * x)
    shifted = find("vmap")(lambda row, by: row + by, in_axes=(0, None))(x, x[0])
    np.testing.assert_array_equal(shifted, x + x[0])
    add = find("lax.fori_loop")(0, 4, lambda i, total: total + 1.0, 0.0)
    assert float(add) == 4.0
    stop = find("lax.while_loop")(lambda n: n < 9, lambda n: n * 2, np.float32(1))
    assert float(stop) == 16.0
    assert find("numpy.array")(np.ones(2)).dtype == "float32"
    assert find("tree.map")(lambda a: a + 1, {"a": 1, "b": [2]}) == {"a": 2, "b": [3]}
    shape = find("eval_shape")(lambda a, by: a @ a.T * by, x, by=2.0)
    assert (tuple(shape.shape), shape.dtype) == ((3, 3), "float32")


def test_trees_have_no_leaf_where_there_is_none():
    find = namespaces.find
    tree = {"b": 1, "a": [2, None]}
    assert find("tree.leaves")(tree) == [2, 1]
    doubled = {"b": 2, "a": [4, None]}
    assert find("tree_util.tree_map")(lambda leaf: 2 * leaf, tree) == doubled
    leaves, structure = find("tree_util.tree_flatten")(tree)
    assert find("tree.unflatten")(structure, [2 * leaf for leaf in leaves]) == doubled
    assert structure == find("tree.structure")(doubled)
    with pytest.raises(ValueError, match="2 are expected, got 1"):
        structure.unflatten([1])


def test_numbers_depend_on_their_key_alone():
    find = namespaces.find
    key = find("random.PRNGKey")(3)
    first, second = find("random.split")(key)
    draw = find("random.normal")
    assert np.array_equal(draw(first, (3,)), draw(first, (3,)))
    assert not np.array_equal(draw(first, (3,)), draw(second, (3,)))
    logits = keras.ops.convert_to_tensor([[0.0, 9.0], [9.0, 0.0]])
    assert find("random.categorical")(key, logits).tolist() == [1, 0]
    few = find("random.truncated_normal")(key, -0.5, 1.0, (999,))
    assert -0.5 <= float(few.min()) < -0.4 < 0.9 < float(few.max()) <= 1.0
    assert float(find("random.exponential")(key, (999,)).mean()) == pytest.approx(
        1, 0.2
    )
    assert float(find("random.gamma")(key, 2.0, (999,)).mean()) == pytest.approx(2, 0.2)
    assert set(find("random.choice")(key, 4, (4,), False).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "name", ["pmap", "scipy.linalg", "numpy.nothing", "lax.nothing"]
)
def test_what_is_missing_is_refused_by_its_full_name(name):
    with pytest.raises(AttributeError, match=f"jax.{name}: "):
        namespaces.find(name)


def test_functions_that_share_only_a_name_with_ours():
    x = np.array([-2.0, 3.0], "float32")
    np.testing.assert_allclose(namespaces.find("nn.leaky_relu")(x), [-0.02, 3.0])
    assert namespaces.find("nn.identity")(x) is x


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("lax.rsqrt", (np.float32([0.5, 4.0]),)),
        ("lax.select", (np.array([True, False]), np.ones(2), np.zeros(2))),
        ("lax.pow", (np.float32([2.0, 3.0]), np.float32([3.0, 2.0]))),
        ("lax.erf_inv", (np.float32([-0.5, 0.25]),)),
        ("nn.soft_sign", (np.float32([-2.0, 3.0]),)),
        ("scipy.special.erfc", (np.float32([-2.0, 0.5]),)),
        ("scipy.special.logsumexp", (np.float32([[1.0, 2.0], [3.0, 3.0]]), 1)),
    ],
)
def test_functions_of_numbers_are_those_of_jax(name, args):
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.scipy.special")
    theirs = functools.reduce(getattr, name.split("."), jax)(*args)
    np.testing.assert_allclose(namespaces.find(name)(*args), theirs, rtol=2e-6)


def test_a_key_is_a_seed_of_keras():
    first, second = namespaces.find("random.split")(namespaces.find("random.key")(3))
    drawn = [keras.random.normal((3,), seed=key) for key in (first, first, second)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    with pytest.raises(ValueError, match="a SeedGenerator"):
        keras.random.normal((3,), seed=np.array([1, 2]))


def test_the_device_says_what_it_is():
    (device,) = namespaces.find("devices")()
    assert device.platform == namespaces.find("default_backend")()
    assert str(device) == f"{device.platform}:0"


ROWS = np.arange(6, dtype="float32").reshape(2, 3)


def changed(index, values):
    array = ROWS.copy()
    array[index] = values
    return array


UPDATES = {
    "set": (lambda x: x.at[0, 1].set(9.0), changed((0, 1), 9)),
    "set rows": (lambda x: x.at[1:].set(x[:1]), changed(1, ROWS[0])),
    "set columns": (lambda x: x.at[..., -1].set(7), changed((..., -1), 7)),
    "add twice": (lambda x: x.at[np.array([0, 0])].add(1.0), changed(0, ROWS[0] + 2)),
    "multiply": (lambda x: x.at[:, 1].mul(3.0), changed((..., 1), 3 * ROWS[:, 1])),
    "divide": (lambda x: x.at[1].divide(2.0), changed(1, ROWS[1] / 2)),
    "largest": (lambda x: x.at[0].max(1.5), changed(0, np.maximum(ROWS[0], 1.5))),
    "smallest": (lambda x: x.at[0].min(1.5), changed(0, np.minimum(ROWS[0], 1.5))),
    "get": (lambda x: x.at[1].get(), ROWS[1]),
}
METHODS = {
    "sum": (lambda x: x.sum(), ROWS.sum()),
    "mean of columns": (lambda x: x.mean(axis=0), ROWS.mean(axis=0)),
    "shape": (lambda x: x.reshape(3, 2).T.flatten(), ROWS.reshape(3, 2).T.flatten()),
    "order": (lambda x: x.transpose(1, 0).argmax(-1), ROWS.T.argmax(-1)),
    "type": (lambda x: (x / 2).astype("int32"), (ROWS / 2).astype("int32")),
    "of NumPy": (lambda x: np.mean(x, axis=1), ROWS.mean(axis=1)),
    "spread": (lambda x: x.std() + x.var(axis=0).max(), ROWS.std() + 2.25),
}


@pytest.mark.parametrize("name", [*UPDATES, *METHODS])
def test_methods_of_arrays_are_those_of_jax_also_in_jit(name):
    namespaces.load("")
    function, expected = {**UPDATES, **METHODS}[name]
    x = namespaces.find("numpy.array")(ROWS)
    for called in (function, namespaces.find("jit")(function)):
        np.testing.assert_allclose(called(x), expected, rtol=1e-6)


def test_gradients_of_single_rows():
    find = namespaces.find
    slope = find("grad")(lambda row: (row**2).sum())
    np.testing.assert_allclose(find("vmap")(slope)(ROWS), 2 * ROWS)
    first = find("grad")(lambda x: (x.at[0].set(0.0) ** 2).sum())
    np.testing.assert_allclose(first(ROWS), changed(0, 0) * 2)
    # By what is the same for all rows, also where a compiled function takes it from
    # outside of itself.
    by_weights = find("grad")(lambda w, row: ((row * w) ** 2).sum())
    of_rows = find("vmap")(by_weights, in_axes=(None, 0))
    weights = find("numpy.asarray")([1.0, -2.0, 0.5])
    expected = 2 * ROWS**2 * np.asarray(weights)
    np.testing.assert_allclose(of_rows(weights, ROWS), expected)
    compiled = find("jit")(lambda rows: of_rows(weights, rows))
    np.testing.assert_allclose(compiled(ROWS), expected)


def test_slopes_of_functions_with_many_results():
    find = namespaces.find
    x = find("numpy.asarray")([0.5, -1.0, 2.0])

    def cubes(x):
        return ROWS @ x**3

    slope = ROWS * 3 * np.asarray(x) ** 2
    for name in ("jacrev", "jacfwd"):
        np.testing.assert_allclose(find(name)(cubes)(x), slope, rtol=1e-6)
    bent = find("hessian")(lambda x: (x**3).sum() + x[0] * x[1])
    second = np.diag(6 * np.asarray(x))
    second[0, 1] = second[1, 0] = 1
    np.testing.assert_allclose(bent(x), second, rtol=1e-6)
    np.testing.assert_allclose(find("jit")(bent)(x), second, rtol=1e-6)
    both = find("vmap")(bent)(find("numpy.stack")([x, x]))
    np.testing.assert_allclose(both, [second, second], rtol=1e-6)
    result, pulled_back = find("vjp")(cubes, x)
    np.testing.assert_allclose(result, cubes(np.asarray(x)), rtol=1e-6)
    weights = find("numpy.ones")(len(ROWS))
    np.testing.assert_allclose(pulled_back(weights)[0], slope.sum(0), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="must return one array"):
        find("jacrev")(lambda x: (x, x))(x)
    weighted = find("jacfwd")(lambda a, b: a * b, argnums=(0, 1))(x, x * 2)
    np.testing.assert_allclose(weighted, [np.diag(x * 2), np.diag(x)], rtol=1e-6)
    value, change = find("jvp")(cubes, (x,), (find("numpy.ones")(3),))
    np.testing.assert_allclose(value, cubes(np.asarray(x)), rtol=1e-6)
    np.testing.assert_allclose(change, slope.sum(1), rtol=1e-6)
    with pytest.raises(NotImplementedError, match=r"jax\.hessian.*one number"):
        find("hessian")(cubes, argnums=(0, 1))


def test_vmap_takes_and_returns_rows_along_any_axis():
    vmap, weights = namespaces.find("vmap"), np.arange(3, dtype="float32")
    scaled = vmap(lambda column, k: column * k, in_axes=(1, None), out_axes=1)
    np.testing.assert_allclose(scaled(ROWS, 2.0), ROWS * 2)
    dots = vmap(namespaces.find("numpy.dot"), in_axes=(0, -1))
    np.testing.assert_allclose(dots(ROWS, ROWS.T), (ROWS**2).sum(1))
    both = vmap(lambda row, by: (row + by, row.sum()), out_axes=(1, 0))
    first, second = both(ROWS, by=np.ones((len(ROWS), 3), "float32"))
    np.testing.assert_allclose(first, (ROWS + 1).T)
    np.testing.assert_allclose(second, ROWS.sum(1))
    tree = vmap(lambda parts, k: parts["a"] * k, in_axes=(1, 0))
    np.testing.assert_allclose(tree({"a": ROWS}, weights), (ROWS * weights).T)
    with pytest.raises(NotImplementedError, match="move the axes of single leaves"):
        vmap(lambda parts: parts["a"], in_axes=({"a": 1},))({"a": ROWS})


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("lax.clamp", (1.0, ROWS, 3.0), ROWS.clip(1, 3)),
        ("lax.switch", (9, [lambda x: x, lambda x: 2 * x], ROWS), 2 * ROWS),
        ("lax.dynamic_slice", (ROWS, (0, 1), (2, 2)), ROWS[:, 1:]),
        ("lax.dynamic_update_slice", (ROWS, [[9.0]], (1, 1)), changed((1, 1), 9)),
        ("ops.segment_sum", (ROWS, np.array([1, 1]), 2), [[0, 0, 0], [3, 5, 7]]),
        ("numpy.array_equal", (ROWS, ROWS[:1]), False),
        ("numpy.full", ((2,), 3), [3, 3]),
        ("tree.reduce", (lambda a, b: a + b, {"a": 1, "b": [2, 3]}), 6),
        ("numpy.var", (ROWS, 0, 1), ROWS.var(0, ddof=1)),
        ("numpy.std", (ROWS,), ROWS.std()),
        ("numpy.sort", (ROWS, None, True), [5, 4, 3, 2, 1, 0]),
        ("numpy.argsort", (np.array([3, 1, 2, 1]), -1, True), [0, 2, 1, 3]),
        ("numpy.clip", (ROWS, 1.0), ROWS.clip(1)),
        ("numpy.bincount", (np.array([3, 1, 2, 1]), None, 0, 3), [0, 2, 1]),
        ("numpy.polyval", ([1.0, 2.0, 3.0], ROWS), np.polyval([1, 2, 3], ROWS)),
        ("numpy.interp", ([-1, 0.5, 1, 9], [0, 1, 2], [2, 4, 5]), [2, 3, 4, 5]),
        ("numpy.atleast_2d", (ROWS[0],), ROWS[:1]),
        ("numpy.column_stack", ([ROWS[0], ROWS[1]],), ROWS.T),
        ("numpy.argwhere", (ROWS > 3,), np.argwhere(ROWS > 3)),
        ("lax.cumsum", (ROWS, 1, True), ROWS[:, ::-1].cumsum(1)[:, ::-1]),
        ("lax.concatenate", ([ROWS, ROWS], 1), np.concatenate([ROWS, ROWS], 1)),
        ("lax.dynamic_slice_in_dim", (ROWS, 2, 2, 1), ROWS[:, 1:]),
        ("lax.dynamic_index_in_dim", (ROWS, 1, 0, False), ROWS[1]),
        ("lax.slice", (ROWS, (0, 0), (2, 3), (1, 2)), ROWS[:, ::2]),
        ("lax.convert_element_type", (ROWS, np.int32), ROWS),
        ("nn.standardize", (ROWS,), [[-1.2247, 0, 1.2247]] * 2),
        ("random.choice", (np.uint32([0, 1]), np.array([7, 7]), (2,)), [7, 7]),
        ("random.choice", (np.uint32([0, 1]), 3, (1,), True, [0, 1, 0]), [1]),
    ],
)
def test_further_functions_of_jax(name, args, expected):
    np.testing.assert_allclose(namespaces.find(name)(*args), expected, rtol=1e-4)
    assert np.asarray(namespaces.find("numpy.full")((2,), 3)).dtype == "int32"
    assert namespaces.find("lax.top_k")(ROWS, 1)[1].tolist() == [[2], [2]]


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]])
def test_the_slope_of_a_slope_goes_through_moments(axes):
    grad, rows = namespaces.find("grad"), ROWS.astype("float64") ** 1.5

    def normalized(x):
        mean, variance = keras.ops.moments(x, axes, keepdims=True)
        return (((x - mean) / (variance + 0.1) ** 0.5) ** 3).sum()

    def step(x):
        return ((x - 0.1 * grad(normalized)(x)) ** 2).sum()

    slopes = np.zeros_like(rows)
    for place in np.ndindex(*rows.shape):
        moved = np.zeros_like(rows)
        moved[place] = 1e-5
        ends = [
            float(step(keras.ops.convert_to_tensor(rows + d))) for d in (moved, -moved)
        ]
        slopes[place] = (ends[0] - ends[1]) / 2e-5
    found = grad(step)(keras.ops.convert_to_tensor(rows))
    np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-6)


def test_a_layer_in_a_scan_changes_its_state_step_by_step():
    layer = keras.layers.BatchNormalization(momentum=0.5)
    layer.build((None, 3))
    trained = [variable.value for variable in layer.trainable_variables]
    fixed = [variable.value for variable in layer.non_trainable_variables]

    def step(fixed, rows):
        outputs, fixed = layer.stateless_call(trained, fixed, rows, training=True)
        return fixed, outputs.sum()

    batches = np.stack([ROWS, ROWS + 1, ROWS + 2])
    found, _ = namespaces.find("lax.scan")(step, fixed, batches)
    mean = np.zeros(3)
    for batch in batches:
        mean = 0.5 * mean + 0.5 * batch.mean(axis=0)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)
    with pytest.raises(RuntimeError, match="written in the body of a loop"):
        keras.ops.map(lambda rows: layer(rows, training=True), batches)
