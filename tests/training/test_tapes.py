"""Gradients in a user's own code, beside TensorFlow's tapes: eager and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import losses, ops, tensors
from ganglion.variables import Scope

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], "float32")
W = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.25]], "float32")


def plain(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        loss = ops.sum(ops.tanh(x @ w.value))
    return first.gradient(loss, [w])


def watched(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        first.watch(x)
        loss = ops.sum(ops.square(ops.matmul(x, w)))
    return first.gradient(loss, {"x": x, "w": w})


def several_targets(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        y = ops.matmul(x, w)
        targets = [y, ops.sum(y * y)]
    return first.gradient(targets, w)


def intermediate(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape(persistent=True) as first:
        y = ops.matmul(x, w)
        z = ops.sum(y**3)
    return first.gradient(z, y), first.gradient(z, w)


def gradient_of_a_gradient(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as outer:
        with tape() as inner:
            inner.watch(x)
            y = ops.sum(ops.sin(ops.matmul(x, w)))
        slope = inner.gradient(y, x)
        penalty = ops.mean((ops.sqrt(ops.sum(slope**2, axis=1)) - 1.0) ** 2)
    return outer.gradient(penalty, [w])


def outside_of_the_tape(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    before = ops.matmul(x, w)
    with tape() as first:
        loss = ops.sum(before * ops.matmul(x, w))
    return first.gradient(loss, w)


def stopped(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        y = ops.matmul(x, w)
        with first.stop_recording():
            factor = ops.sum(ops.matmul(x, w))
        loss = ops.sum(y) * factor + ops.sum(ops.stop_gradient(y) * y)
    return first.gradient(loss, w)


def assigned_inside(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        loss = ops.sum(ops.matmul(x, w) ** 2)
        w.assign(w * 2.0)
        loss = loss + ops.sum(ops.matmul(x, w) ** 3)
    found = first.gradient(loss, w)
    w.assign(w * 0.5)
    return found


def weighted(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        y = ops.matmul(x, w)
    return first.gradient(y, w, output_gradients=ops.ones_like(y) * 2.0)


def jacobian(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        first.watch(x)
        y = ops.tanh(ops.matmul(x, w))
    return first.jacobian(y, x)


def batch_jacobian(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        first.watch(x)
        y = ops.tanh(ops.matmul(x, w))
    return first.batch_jacobian(y, x)


def unconnected(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape(persistent=True) as first:
        first.watch(x)
        loss = ops.sum(w * 2.0)
    none = first.gradient(loss, [x])
    return [none[0] is None, first.gradient(loss, x, unconnected_gradients="zero")]


def loops(tape: Any, ops: Any, x: Any, w: Any) -> Any:
    with tape() as first:
        y = ops.while_loop(
            lambda i, y: i < 3,
            lambda i, y: (
                i + 1,
                ops.tanh(ops.matmul(y, ops.matmul(ops.transpose(x), x)) * 0.1),
            ),
            (0, ops.transpose(w.value)),
        )[1]
        loss = ops.sum(ops.sort(y, axis=0)[0])
        loss = ops.cond(loss > 0, lambda: loss * 2.0, lambda: loss * 3.0)
    return first.gradient(loss, w)


CASES: list[Callable[..., Any]] = [
    plain,
    watched,
    several_targets,
    intermediate,
    gradient_of_a_gradient,
    outside_of_the_tape,
    stopped,
    assigned_inside,
    weighted,
    jacobian,
    batch_jacobian,
    unconnected,
    loops,
]


def flat(structure: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in ganglion.tree.flatten(structure)]


@pytest.mark.rivals
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_are_those_of_tensorflow(
    case: Callable[..., Any], keras: Any
) -> None:
    import tensorflow as tf

    theirs = case(
        tf.GradientTape, keras.ops, tf.constant(X), keras.Variable(W, dtype="float32")
    )
    x, w = ops.convert_to_tensor(X), ganglion.Variable(W)
    eager = case(ganglion.GradientTape, ops, x, w)
    compiled = ganglion.function(lambda x: case(ganglion.GradientTape, ops, x, w))(x)
    for mine in (eager, compiled):
        for ours, expected in zip(flat(mine), flat(theirs), strict=True):
            np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(w.numpy(), W)


def test_a_tape_gives_one_set_of_gradients_unless_it_is_persistent() -> None:
    w = ganglion.Variable(2.0)
    with ganglion.GradientTape() as tape:
        y = w * w
    tape.gradient(y, w)
    with pytest.raises(RuntimeError, match="persistent=True"):
        tape.gradient(y, w)


def test_only_watched_variables_have_gradients() -> None:
    fixed = ganglion.Variable(2.0, trainable=False)
    w = ganglion.Variable(3.0)
    with ganglion.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(fixed)
        y = w * fixed
    assert [g if g is None else float(g) for g in tape.gradient(y, [w, fixed])] == [
        None,
        3.0,
    ]


def test_a_tape_says_which_variables_it_watched() -> None:
    w = ganglion.Variable(3.0)
    ganglion.Variable(3.0)
    with ganglion.GradientTape() as tape:
        w * 2.0
    assert tape.watched_variables() == (w,)


def test_what_a_tape_recorded_goes_with_it() -> None:
    w = ganglion.Variable(3.0)
    with ganglion.GradientTape() as tape:
        y = w * w
    tape.gradient(y, w)
    assert y._value is not None
    assert y._value() is None


def test_value_and_grad_as_in_jax() -> None:
    def loss(weights: Any, x: Any) -> Any:
        return ops.sum(weights["a"] * x) + ops.sum(weights["b"]), "aux"

    weights = {"a": ops.ones((2,)), "b": np.float32(3)}
    both = ganglion.value_and_grad(loss, has_aux=True)
    (value, aux), found = both(weights, np.array([1.0, 2.0], "float32"))
    assert (float(value), aux) == (6.0, "aux")
    np.testing.assert_array_equal(found["a"], [1, 2])
    assert float(found["b"]) == 1
    third = ganglion.grad(ganglion.grad(ganglion.grad(lambda x: x**4)))
    assert float(third(2.0)) == 48
    with pytest.raises(TypeError, match="one number"):
        ganglion.grad(lambda x: x * 2)(np.ones(2))


def test_backward_as_in_pytorch() -> None:
    layer = ganglion.layers.Dense(1, kernel_initializer="ones")
    layer.build((None, 2))
    with pytest.raises(RuntimeError, match="zero_grad"):
        layer(np.ones((1, 2))).backward()
    for _ in range(2):
        layer.zero_grad()
        ops.sum(layer(np.array([[1.0, 2.0]]))).backward()
        np.testing.assert_array_equal(layer.kernel.value.grad, [[1], [2]])
    with Scope():
        ops.sum(layer(ops.ones((1, 2)))).backward()
        assert layer.kernel.value.grad.shape == (2, 1)
        layer.zero_grad()
        assert layer.kernel.value.grad is None


def test_a_gradient_of_ones_own() -> None:
    @ops.custom_gradient
    def log1pexp(x: Any, y: Any) -> Any:
        e = ops.exp(x)

        def gradient(*upstream: Any) -> Any:
            return upstream[0] * (1 - 1 / (1 + e)), None

        return (ops.log(1 + e), y), gradient

    x = ops.convert_to_tensor(100.0)
    with ganglion.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y, _ = log1pexp(x, ops.ones((2,)))
    assert float(tape.gradient(y, x)) == 1.0


def test_a_script_for_pytorch_forgets_gradients_after_the_model_was_called(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    model = ganglion.Sequential([ganglion.Input((3,)), ganglion.layers.Dense(1)])
    x = np.ones((4, 3), "float32")
    for _ in range(2):
        loss = ops.mean(ops.square(model(x)))
        model.zero_grad()
        loss.backward()
        gradients = [weight.value.grad for weight in model.trainable_weights]
        expected = 2 * model(x, training=False).numpy().mean()
        np.testing.assert_allclose(gradients[1], [expected], rtol=1e-5)
    assert tensors.recording() is None


def test_a_tape_knows_a_call_that_was_made_before_it_began() -> None:
    model = ganglion.Sequential([ganglion.Input((3,)), ganglion.layers.Dense(2)])
    kernel = model.trainable_variables[0]

    def slopes(x: Any) -> Any:
        model(x)  # an equal call, before the block
        with ganglion.GradientTape() as tape:
            loss = ops.sum(model(x))
            with tape.stop_recording():
                constant = ops.sum(model(x))
            loss = loss + constant
        return tape.gradient(loss, kernel)

    eager = slopes(X)
    np.testing.assert_allclose(eager, np.repeat(X.sum(0)[:, None], 2, 1), rtol=1e-5)
    np.testing.assert_allclose(ganglion.function(slopes)(X), eager, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "slope"),
    [
        (lambda x: ops.sum([x, x * x]), [3, 5]),
        (lambda x: ops.convert_to_tensor([[x[0], 1.0], [0.0, x[1] * x[0]]]), [3, 1]),
        (lambda x: ops.concatenate([x, [x[0]]]), [2, 1]),
        (lambda x: x * [x[1], x[1]], [2, 5]),
        (lambda x: losses.mean_squared_error([x], [x * x]), [0, 6]),
    ],
)
def test_lists_of_tensors_have_gradients(function, slope):
    point = ganglion.Variable([1.0, 2.0])
    with ganglion.GradientTape() as tape:
        y = ops.sum(function(point * 1.0))
    np.testing.assert_allclose(tape.gradient(y, point), slope)
    traced = ganglion.function(lambda x: function(x))  # lists of traced values, too
    np.testing.assert_allclose(traced(point.numpy()), function(point.numpy()))
    assert traced.tracing_count == 1


def test_a_tape_in_a_compiled_function_watches_arrays_from_outside() -> None:
    points = ops.convert_to_tensor(np.array([[0.5, -1.0], [2.0, 0.25]], "float32"))

    @ganglion.function
    def slopes(scale: Any) -> Any:
        with ganglion.GradientTape(persistent=True) as outer:
            outer.watch(points)
            with ganglion.GradientTape() as inner:
                inner.watch(points)
                left, right = points[:, 0:1], points[:, 1:2]
                y = ops.sum(left * right * right) * scale + (points * points).sum()
            first = inner.gradient(y, points)
            total = ops.sum(first)
        return first, outer.gradient(total, points)

    first, second = slopes(ops.convert_to_tensor(3.0))
    left, right = np.hsplit(np.asarray(points), 2)
    expected = np.hstack([3 * right**2, 6 * left * right]) + 2 * np.asarray(points)
    np.testing.assert_allclose(first, expected, rtol=1e-6)
    more = np.hstack([6 * right, 6 * left + 6 * right]) + 2
    np.testing.assert_allclose(second, more, rtol=1e-6)
    assert isinstance(points * points, np.ndarray)  # what was traced is over


def test_rows_have_gradients_by_what_is_the_same_for_all() -> None:
    dense = ganglion.layers.Dense(2)
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    dense(rows)

    def of_row(row: Any) -> Any:
        with ganglion.GradientTape() as tape:
            loss = ops.sum(dense(row[None]) ** 2)
        return tape.gradient(loss, dense.trainable_variables)

    kernel, bias = ops.vectorized_map(of_row, rows)
    np.testing.assert_allclose(bias, 2 * (rows @ dense.kernel.numpy()), atol=1e-5)
    np.testing.assert_allclose(
        kernel, rows[:, :, None] * np.asarray(bias)[:, None], atol=1e-5
    )


def test_methods_take_dim_as_in_pytorch() -> None:
    x = ops.convert_to_tensor(np.arange(6.0, dtype="float32").reshape(2, 3))
    np.testing.assert_array_equal(x.sum(dim=1, keepdim=True), [[3], [12]])
    traced = ganglion.function(lambda a: a.mean(dim=0))
    np.testing.assert_array_equal(traced(x), [1.5, 2.5, 3.5])
    with pytest.raises(TypeError, match=r"Tensor.max\(dim=\)"):
        x.max(dim=1)  # of PyTorch's, it returns a pair


def test_functions_of_pytorch_are_ops_of_what_a_step_computes(monkeypatch) -> None:
    torch = pytest.importorskip("torch")
    functions = torch.nn.functional
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    labels = torch.tensor([0, 1])

    def loss_of(logits: Any, weights: Any, copy: Any) -> Any:
        both = torch.cat([logits, copy], dim=0)
        loss = torch.mean(torch.clamp(both * weights, min=-0.5), dim=(0, 1))
        loss = loss + functions.cross_entropy(logits, labels)
        loss = loss + functions.mse_loss(functions.softmax(logits, dim=-1), copy)
        return loss + torch.sum(torch.stack([logits, copy], dim=1) ** 2)

    class Model(ganglion.Model):
        def train_step(self, data: Any) -> Any:
            x, y = data
            self.zero_grad()
            copy = torch.tensor(y)
            loss = loss_of(self(x), torch.ones(4, 2) / 2, copy)
            loss.backward()
            self.optimizer.apply(
                [v.value.grad for v in self.trainable_weights], self.trainable_weights
            )
            return {"total": loss}

    inputs = ganglion.Input((3,))
    model = Model(inputs, ganglion.layers.Dense(2, use_bias=False)(inputs))
    model.set_weights([W])
    model.compile(ganglion.optimizers.SGD(0.1))
    weights = torch.tensor(W, requires_grad=True)
    copy = torch.tensor(X[:, :2])
    expected = loss_of(torch.tensor(X) @ weights, torch.ones(4, 2) / 2, copy)
    expected.backward()
    history = model.fit(X, X[:, :2], batch_size=2, shuffle=False, verbose=0)
    assert history.history["total"] == pytest.approx([expected.item()], rel=1e-5)
    new = W - 0.1 * weights.grad.numpy()
    np.testing.assert_allclose(model.get_weights()[0], new, rtol=1e-4, atol=1e-6)
    tensor = ops.convert_to_tensor(X)
    with pytest.raises(TypeError, match="erfinv of PyTorch does not take"):
        torch.erfinv(tensor)
    with pytest.raises(TypeError, match="requires a gradient"):
        torch.cat([tensor, torch.ones(2, 3, requires_grad=True)])
