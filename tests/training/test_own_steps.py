"""Steps that a user wrote: as in Keras, compiled and eager, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import own_steps
import pytest

import ganglion
from ganglion import ops

NAMES = [
    "plain", "gan", "wgan", "vae", "distiller", "accumulating", "measured", "twice",
]  # fmt: skip
MINE = own_steps.models(ganglion, ganglion.GradientTape)


def trained(model: Any, data: Any, **kwargs: Any) -> dict[str, list[float]]:
    options = {"batch_size": 8, "epochs": 2, "shuffle": False, "verbose": 0}
    return model.fit(*data, **options, **kwargs).history


def weights_of(model: Any) -> list[np.ndarray]:
    return [np.asarray(variable) for variable in model.weights]


def give_weights(model: Any, weights: list[np.ndarray]) -> None:
    for variable, weight in zip(model.weights, weights, strict=True):
        variable.assign(weight)


@pytest.fixture
def backend() -> Iterator[Any]:
    before = ganglion.config.backend_choice()
    yield ganglion.config.set_backend
    ganglion.config.set_backend(before)


@pytest.mark.rivals
@pytest.mark.parametrize("name", NAMES)
def test_own_steps_learn_as_in_keras(name: str, keras: Any, backend: Any) -> None:
    import tensorflow as tf

    theirs, data = own_steps.cases(own_steps.models(keras, tf.GradientTape))[name]
    start = weights_of(theirs)
    expected = trained(theirs, data)
    if name == "plain":
        evaluated = theirs.evaluate(*data, verbose=0, batch_size=24, return_dict=True)
        predicted = theirs.predict(data[0], verbose=0)
    for choice, eagerly in (("cpu", False), ("numpy", False), ("cpu", True)):
        backend(choice)
        mine, _ = own_steps.cases(MINE)[name]
        mine.run_eagerly = eagerly
        give_weights(mine, start)
        history = trained(mine, data)
        assert history.keys() == expected.keys()
        for key, values in expected.items():
            np.testing.assert_allclose(history[key], values, rtol=2e-4, atol=1e-5)
        for ours, other in zip(weights_of(mine), weights_of(theirs), strict=True):
            np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-5)
        if name == "plain":
            found = mine.evaluate(*data, verbose=0, batch_size=24, return_dict=True)
            assert found.keys() == evaluated.keys()
            assert found["rmse"] == pytest.approx(evaluated["rmse"], rel=1e-3)
            outputs = mine.predict(data[0], verbose=0)
            np.testing.assert_allclose(outputs, predicted, rtol=1e-3, atol=1e-4)


def counting(cls: Any) -> Any:
    class Counting(cls):
        calls = 0

        def train_step(self, *args: Any) -> Any:
            self.calls += 1
            return super().train_step(*args)

    return Counting


def test_a_step_is_traced_once_and_runs_in_chunks() -> None:
    model = MINE.dense([4, 1], 3, counting(ganglion.Sequential))
    model.compile("sgd", "mse")
    x = np.ones((64, 3), "float32")
    model.fit(x, x[:, :1], batch_size=4, epochs=3, verbose=0)
    assert model.calls == 1
    assert int(model.optimizer.iterations) == 48
    eager = MINE.dense([4, 1], 3, counting(ganglion.Sequential))
    eager.compile("sgd", "mse", run_eagerly=True)
    eager.fit(x, x[:, :1], batch_size=16, verbose=0)
    assert eager.calls == 4


class InJaxsWay(ganglion.Sequential):
    def loss_and_updates(self, trained: Any, fixed: Any, x: Any, y: Any) -> Any:
        y_pred, fixed = self.stateless_call(trained, fixed, x, training=True)
        return self.compute_loss(x, y, y_pred), (y_pred, fixed)

    def train_step(self, state: Any, data: Any) -> Any:
        trained, fixed, slots, sums = state
        x, y = data
        both = ganglion.value_and_grad(self.loss_and_updates, has_aux=True)
        (loss, (y_pred, fixed)), grads = both(trained, fixed, x, y)
        trained, slots = self.optimizer.stateless_apply(slots, grads, trained)
        logs, new = {}, []
        for metric in self.metrics:
            own = sums[len(new) : len(new) + len(metric.variables)]
            values = (loss,) if metric.name == "loss" else (y, y_pred)
            own = metric.stateless_update_state(own, *values)
            logs[metric.name] = metric.stateless_result(own)
            new += own
        return logs, (trained, fixed, slots, new)


class Explicit(ganglion.Sequential):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class InPytorchsWay(ganglion.Sequential):
    def train_step(self, data: Any) -> Any:
        x, y = data
        self.zero_grad()
        y_pred = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        loss.backward()
        weights = list(self.trainable_weights)
        self.optimizer.apply([w.value.grad for w in weights], weights)
        self.metrics[0].update_state(loss)
        for metric in self.metrics[1:]:
            metric.update_state(y, y_pred)
        return {metric.name: metric.result() for metric in self.metrics}


@pytest.mark.parametrize("eagerly", [False, True])
def test_the_ways_of_tensorflow_jax_and_pytorch_are_one(eagerly: bool) -> None:
    x = np.random.default_rng(1).normal(size=(16, 3)).astype("float32")
    histories = []
    for cls in (ganglion.Sequential, Explicit, InJaxsWay, InPytorchsWay):
        ganglion.utils.set_random_seed(5)
        model = cls(
            [
                ganglion.Input((3,)),
                ganglion.layers.Dense(4),
                ganglion.layers.BatchNormalization(),
                ganglion.layers.Dropout(0.5),
                ganglion.layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"], run_eagerly=eagerly)
        histories.append(trained(model, (x, x[:, :1])))
    for history in histories[1:]:
        assert history.keys() == histories[0].keys()
        for key, values in histories[0].items():
            np.testing.assert_allclose(history[key], values, rtol=1e-5)


def test_eager_steps_see_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    class Printing(ganglion.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = ganglion.layers.Dense(1, kernel_initializer="ones")

        def call(self, x: Any) -> Any:
            x = self.dense(x)
            if float(ops.max(x)) > 1:
                print("sum", ops.sum(x), x.numpy().shape)
            return x

    model = Printing()
    model.compile("sgd", "mse", run_eagerly=True)
    x = np.ones((2, 2), "float32")
    model.fit(x, x[:, :1], batch_size=2, verbose=0)
    assert "sum 4.0 (2, 1)" in capsys.readouterr().out
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="run_eagerly=True"):
        model.fit(x, x[:, :1], verbose=0)


def test_streams_batches_callbacks_and_validation_have_the_logs() -> None:
    model, (x, noise) = own_steps.cases(MINE)["vae"]
    seen: list[dict[str, float]] = []
    callback = ganglion.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(logs)
    )

    def batches() -> Iterator[Any]:
        while True:
            yield x[:8], noise[:8]

    history = model.fit(
        batches(),
        steps_per_epoch=3,
        epochs=2,
        callbacks=[callback],
        validation_data=(x, noise),
        verbose=0,
    ).history
    assert len(seen) == 6
    assert set(seen[0]) == {"loss", "reconstruction_loss", "kl_loss"}
    assert seen[-1]["loss"] == history["loss"][-1]
    assert len(history["val_kl_loss"]) == 2
    logs = model.train_on_batch(x, noise, return_dict=True)
    assert set(logs) == set(seen[0])


def test_the_guide_for_losses_of_layers() -> None:
    class Regularizing(ganglion.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(0.5 * ops.mean(x))
            self.add_metric(ops.max(x), name="largest", aggregation="mean")
            return x

    layer = Regularizing()
    for _ in range(2):
        layer(np.full((2, 2), 3.0, "float32"))
        assert [float(loss) for loss in layer.losses] == [1.5]
    layer.add_loss(ops.convert_to_tensor(2.0))
    assert [float(loss) for loss in layer.losses] == [1.5, 2.0]
    layer.add_loss(lambda: ops.convert_to_tensor(4.0))
    assert [float(loss) for loss in layer.losses] == [1.5, 2.0, 4.0]
    with ganglion.GradientTape() as tape:
        x = ops.ones((2, 2))
        tape.watch(x)
        layer(x)
        total = sum(layer.losses)
    np.testing.assert_allclose(tape.gradient(total, x), np.full((2, 2), 0.125))
    inputs = ganglion.Input((2,))
    outputs = ganglion.layers.Dense(1)(Regularizing()(inputs))
    model = ganglion.Model(inputs, outputs)
    model.add_metric(ops.sum(inputs), name="sum")
    model.compile("sgd", "mse")
    history = model.fit(np.ones((4, 2)), np.ones((4, 1)), batch_size=2, verbose=0)
    assert history.history["largest"] == [1.0]
    assert history.history["sum"] == [4.0]


def test_a_step_must_return_logs() -> None:
    class Wrong(ganglion.Sequential):
        def train_step(self, data: Any) -> Any:
            return ops.sum(data[0])

    model = MINE.dense([1], 3, Wrong)
    model.compile("sgd", "mse")
    with pytest.raises(TypeError, match="must return a dictionary"):
        model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)


def test_logs_that_are_not_finite_are_told_of() -> None:
    class Exploding(ganglion.Sequential):
        def train_step(self, data: Any) -> Any:
            return {"loss": ops.log(ops.sum(data[0]) - 6.0)}

    model = MINE.dense([1], 3, Exploding)
    model.compile("sgd", "mse")
    with pytest.warns(RuntimeWarning, match="`train_step` returned as loss"):
        model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)


def test_a_function_around_the_steps_is_refused_with_the_way_out() -> None:
    class Looping(ganglion.Sequential):
        def make_train_function(self, force: bool = False) -> Any:
            return super().make_train_function(force)

    model = MINE.dense([1], 3, Looping)
    model.compile("sgd", "mse")
    with pytest.raises(NotImplementedError, match="override `train_step`"):
        model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    logs = model.make_train_function()(iter([(np.ones((2, 3)), np.ones((2, 1)))]))
    assert set(logs) == {"loss"}


class Parts(ganglion.Model):
    """Trains one of its parts; it has no `call`, and is never called itself."""

    def __init__(self):
        super().__init__()
        self.trained = ganglion.Sequential(
            [ganglion.Input((3,)), ganglion.layers.Dense(2)]
        )
        self.other = ganglion.models.clone_model(self.trained)

    def train_step(self, data):
        x, y = data
        with ganglion.GradientTape() as tape:
            loss = ops.mean(ops.square(self.trained(x) - y))
        weights = self.trained.trainable_variables
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss}


def test_a_model_that_is_never_called_is_saved_and_goes_on(tmp_path):
    x, y = np.ones((8, 3), "float32"), np.zeros((8, 2), "float32")
    model = Parts()
    with pytest.raises(ValueError, match="no weights to save yet"):
        ganglion.Model().save_weights(tmp_path / "none.weights.h5")
    model.compile("adam")
    model.fit(x, y, verbose=0)
    model.save_weights(tmp_path / "parts.weights.h5")
    after, optimizer = model.get_weights(), model.optimizer
    slots = [variable.numpy() for variable in optimizer.variables]
    model.fit(x, y, epochs=2, verbose=0)
    model.load_weights(tmp_path / "parts.weights.h5")
    assert model.optimizer is optimizer
    for ours, kept in zip(optimizer.variables, slots, strict=True):
        np.testing.assert_array_equal(ours.numpy(), kept)
    for ours, kept in zip(model.get_weights(), after, strict=True):
        np.testing.assert_array_equal(ours, kept)


def test_what_is_computed_from_sizes_has_numbers_in_a_trace():
    class Filled(ganglion.layers.Layer):
        def call(self, x):
            rows = ops.cast(ops.shape(x)[0], "int64")
            assert bool(rows > 0)
            return x + ops.ones((rows, 1))

    inputs = ganglion.Input((3,))
    model = ganglion.Model(inputs, Filled()(inputs))
    assert model.predict(np.zeros((5, 3)), verbose=0).sum() == 15


def test_keras_2_had_a_compiled_loss_and_compiled_metrics():
    class Old(ganglion.Sequential):
        def train_step(self, data):
            x, y = data
            with ganglion.GradientTape() as tape:
                loss = self.compiled_loss(y, self(x), regularization_losses=self.losses)
            weights = self.trainable_variables
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, weights), weights, strict=True)
            )
            self.compiled_metrics.update_state(y, self(x))
            return {metric.name: metric.result() for metric in self.metrics}

    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    logs = []
    for cls in (Old, ganglion.Sequential):
        ganglion.utils.set_random_seed(0)
        dense = ganglion.layers.Dense(1, kernel_regularizer="l2")
        model = cls([ganglion.Input((3,)), dense])
        model.compile(ganglion.optimizers.SGD(0.0), "mse", metrics=["mae"])
        logs.append(model.fit(x, y, verbose=0).history)
    assert logs[0].keys() == logs[1].keys() == {"loss", "mae"}
    np.testing.assert_allclose(logs[0]["loss"], logs[1]["loss"], rtol=1e-6)
    np.testing.assert_allclose(logs[0]["mae"], logs[1]["mae"], rtol=1e-6)


class Paired(ganglion.Model):
    """A step on two batches at once, of rows with and without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = ganglion.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        plain, (x, y) = data
        with ganglion.GradientTape() as tape:
            loss = ops.mean(self(plain) ** 2) + ops.mean((self(x) - y) ** 2)
        weights = self.trainable_weights
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        return {"loss": loss, "rows": ops.shape(plain)[0] + 100 * ops.shape(x)[0]}


@pytest.mark.parametrize("eagerly", [False, True])
def test_the_parts_of_a_batch_may_differ_in_their_rows(eagerly: bool) -> None:
    x = np.arange(24, dtype="float32").reshape(12, 2) / 24
    batches = [(x[i : i + 6], (x[:2], x[:2, :1])) for i in (0, 6)]
    model = Paired()
    model.compile("sgd", run_eagerly=eagerly)
    model(x)
    model.dense.set_weights([np.ones((2, 1)), np.zeros(1)])
    logs = model.fit(iter(batches), verbose=0).history
    assert logs["rows"] == [206]
    assert np.isfinite(logs["loss"][0])
    assert model.train_on_batch(*batches[0], return_dict=True)["rows"] == 206


def test_arrays_of_other_lengths_are_refused_still() -> None:
    model = Paired()
    model.compile("sgd")
    with pytest.raises(ValueError, match="differ in their number of rows"):
        model.fit(np.ones((6, 2)), np.ones((4, 1)), verbose=0)


def test_fit_trains_a_model_whose_call_takes_no_training() -> None:
    """Keras 3 leaves its layers in inference; see docs/differences.md."""

    class Normalized(ganglion.Model):
        def __init__(self) -> None:
            super().__init__()
            self.norm = ganglion.layers.BatchNormalization(momentum=0.5)

        def call(self, x: Any) -> Any:
            return self.norm(x)

    model = Normalized()
    model.compile("sgd", "mse")
    model.fit(np.full((4, 1), 3.0), np.zeros((4, 1)), verbose=0)
    np.testing.assert_allclose(model.norm.moving_mean, [1.5])
