"""fit, evaluate and predict: what they accept, and that they mean what Keras means."""

import numpy as np
import pytest
from training_models import blobs, classifier

import ganglion as keras
from ganglion import callbacks, layers, metrics
from ganglion.random import shuffled


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(7)


def by_hand(model, batches, rate):
    """Train the classifier in plain NumPy, float64, without any of our code."""
    w1, b1, w2, b2 = (array.astype("float64") for array in model.get_weights())
    losses = []
    for x, y in batches:
        hidden = np.maximum(x @ w1 + b1, 0)
        logits = hidden @ w2 + b2
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-np.log(p[np.arange(len(y)), y]).mean())
        d = (p - np.eye(p.shape[1])[y]) / len(y)
        dh = (d @ w2.T) * (hidden > 0)
        w2, b2 = w2 - rate * hidden.T @ d, b2 - rate * d.sum(0)
        w1, b1 = w1 - rate * x.T @ dh, b1 - rate * dh.sum(0)
    return losses, [w1, b1, w2, b2]


def test_fit_equals_training_by_hand():
    x, y = blobs(50)
    model = classifier()
    batches = [(x[i : i + 16], y[i : i + 16]) for i in range(0, 50, 16)]
    losses, weights = by_hand(model, batches * 2, 0.1)
    history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    sizes = [16, 16, 16, 2]  # the epoch's loss is weighted by the size of its batches
    for epoch in range(2):
        expected = np.average(losses[4 * epoch : 4 * epoch + 4], weights=sizes)
        assert history.history["loss"][epoch] == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("regularizer", ["l1_l2", lambda weight: 0.5])
def test_a_regularizer_may_return_a_python_number(regularizer):
    layer = layers.Dense(1, kernel_initializer="zeros", kernel_regularizer=regularizer)
    model = keras.Sequential([layers.Input((2,)), layer])
    model.compile("sgd", "mse")
    loss = model.train_on_batch(np.ones((3, 2)), np.ones((3, 1)))
    assert loss == (1.0 if regularizer == "l1_l2" else 1.5)


def test_shuffling_visits_every_row_in_the_documented_order():
    x, y = blobs(50)
    model = classifier()
    seed = int(model.training_state.order.array[0])
    batches = []
    for epoch in range(2):
        order = shuffled(seed, epoch, 50)
        assert sorted(order) == list(range(50))
        batches += [
            (x[order[i : i + 16]], y[order[i : i + 16]]) for i in (0, 16, 32, 48)
        ]
    _, weights = by_hand(model, batches, 0.1)
    model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_equal_seeds_give_equal_bits_and_other_seeds_do_not():
    x, y = blobs()
    runs = []
    for seed in (3, 3, 4):
        keras.utils.set_random_seed(seed)
        model = keras.Sequential(
            [keras.Input((4,)), layers.Dense(8), layers.Dropout(0.5), layers.Dense(3)]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        model.fit(x, y, epochs=3, verbose=0)
        runs.append(np.concatenate([array.ravel() for array in model.get_weights()]))
    assert np.array_equal(runs[0], runs[1])
    assert not np.allclose(runs[0], runs[2])


def test_dropout_differs_from_step_to_step_and_is_off_in_prediction():
    model = keras.Sequential([keras.Input((100,)), layers.Dropout(0.5)])
    x = np.ones((2, 100), "float32")
    first, second = model(x, training=True), model(x, training=True)
    assert not np.array_equal(first, second)
    assert set(np.unique(first)) == {0.0, 2.0}
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)


def test_float64_is_used_throughout():
    keras.config.set_floatx("float64")
    try:
        x, y = blobs()
        model = classifier()
        batches = [
            (x[i : i + 20].astype("float64"), y[i : i + 20]) for i in (0, 20, 40)
        ]
        _, weights = by_hand(model, batches, 0.1)
        model.fit(x, y, batch_size=20, shuffle=False, verbose=0)
        step, _ = next(iter(model._step_cache._steps.values()))
        floats = {v.dtype for v in step.program.graph.nodes if v.dtype.kind == "f"}
    finally:
        keras.config.set_floatx("float32")
    assert floats == {np.dtype("float64")}
    for ours, theirs in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_one_step_graph_holds_everything():
    x, y = blobs()
    model = keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(8),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=30, verbose=0)
    (step, _), *_ = model._step_cache._steps.values()
    graph = step.program.graph
    ops = {node.op.name for node in graph.nodes}
    assert {"shuffle", "gather", "matmul", "random_uniform"} <= ops
    assert set(step.program.data) == {"x", "y"}
    changed = {name.rsplit("/")[-1] for name in graph.outputs}
    assert {"position", "moving_mean", "moving_variance", "iteration"} <= changed
    assert {"total", "count"} <= changed  # the metrics' sums
    assert "seed_generator_state" in changed
    layers_seen = {node.origin.layer for node in graph.nodes}
    assert f"{model.name}/dense" in " ".join(layers_seen)


# ---- callbacks and the loop ----------------------------------------------------------


class Counter(callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.batches = []

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((batch, logs["loss"]))


def test_a_callback_that_asks_sees_every_batch():
    x, y = blobs(50)
    counter = Counter()
    classifier().fit(x, y, batch_size=16, epochs=2, callbacks=[counter], verbose=0)
    assert [batch for batch, _ in counter.batches] == [0, 1, 2, 3] * 2


def test_steps_run_in_chunks_when_nobody_asks():
    x, y = blobs(640)
    model = classifier()
    seen = []
    run = model._step_cache.run

    def watched(compiled, table, steps, cursor):
        seen.append(steps)
        return run(compiled, table, steps, cursor)

    model._step_cache.run = watched
    model.fit(x, y, batch_size=10, epochs=1, verbose=0)
    assert sum(seen) == 64
    assert len(seen) < 64


def test_stop_training_ends_the_run():
    x, y = blobs()

    class Stop(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.stop_training = epoch == 1

    history = classifier().fit(x, y, epochs=9, callbacks=[Stop()], verbose=0)
    assert len(history.epoch) == 2


def test_learning_rate_changes_without_a_new_trace():
    x, y = blobs()
    model = classifier()
    model.fit(x, y, verbose=0)
    count = len(model._step_cache._steps)
    weights = model.get_weights()
    model.optimizer.learning_rate = 0.0
    model.fit(x, y, verbose=0)
    assert len(model._step_cache._steps) == count
    for a, b in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_own_loss_and_metric_functions():
    x, y = blobs()

    def doubled(y_true, y_pred):
        return 2.0 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    def top(y_true, y_pred):
        return keras.ops.max(y_pred, axis=-1)

    class Rows(metrics.Metric):
        def __init__(self):
            super().__init__(name="rows")
            self.count = self.add_weight(shape=(), initializer="zeros", name="count")

        def update_state(self, y_true, y_pred, sample_weight=None):
            self.count.assign_add(float(y_true.shape[0]))

        def result(self):
            return self.count

    model = classifier(loss=doubled, metrics=[top, Rows()])
    plain = classifier()
    plain.set_weights(model.get_weights())
    logs = model.evaluate(x, y, return_dict=True, verbose=0)
    assert logs["rows"] == 60
    assert 0 < logs["top"] <= 1
    expected = plain.evaluate(x, y, return_dict=True, verbose=0)["loss"]
    assert logs["loss"] == pytest.approx(2 * expected, rel=1e-6)


def test_regularizers_and_activity_losses_are_part_of_the_loss():
    model = keras.Sequential(
        [
            keras.Input((2,)),
            layers.Dense(
                2, use_bias=False, kernel_regularizer=keras.regularizers.L2(0.5)
            ),
            layers.ActivityRegularization(l1=0.1),
        ]
    )
    model.compile("sgd", "mse")
    model.set_weights([np.array([[1.0, 0.0], [0.0, 2.0]])])
    x = np.array([[1.0, -1.0]])
    loss = model.evaluate(x, np.zeros((1, 2)), verbose=0)
    assert loss == pytest.approx((1 + 4) / 2 + 0.5 * 5 + 0.1 * 3, rel=1e-6)


def test_a_loss_may_use_tensors_of_the_model():
    entry, weight = keras.Input((3,)), keras.Input((1,))
    normed = layers.BatchNormalization(name="norm")(entry)
    code = layers.Dense(2)(normed)
    model = keras.Model([entry, weight], layers.Dense(3)(code))
    penalty = keras.ops.sum(code**2, axis=-1)  # no part of the model's own outputs

    def loss(y_true, y_pred):
        errors = keras.ops.mean((y_true - y_pred) ** 2, axis=-1)
        return errors * weight[:, 0] + 0.1 * penalty + keras.ops.sum(layer(code), -1)

    layer = layers.Activation("tanh")
    model.compile(keras.optimizers.SGD(0.1), loss)
    x = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
    weights = np.arange(8, dtype="float32")[:, None]
    sub = keras.Model(model.inputs, [code, model.output])
    codes, outputs = sub.predict([x, weights], verbose=0)
    errors = ((x - outputs) ** 2).mean(-1) * weights[:, 0]
    by_hand = errors + 0.1 * (codes**2).sum(-1) + np.tanh(codes).sum(-1)
    assert model.evaluate([x, weights], x, verbose=0) == pytest.approx(
        float(by_hand.mean()), rel=1e-5
    )
    model.fit([x, weights], x, verbose=0)
    means = model.get_layer("norm").moving_mean  # moved by one call, not by two
    np.testing.assert_allclose(means, 0.01 * x.mean(0), rtol=1e-4, atol=1e-7)


def test_a_loss_with_tensors_of_another_model_is_refused():
    entry, other = keras.Input((3,)), keras.Input((3,))
    model = keras.Model(entry, layers.Dense(3)(entry))
    model.compile("sgd", lambda y_true, y_pred: (y_true - y_pred) ** 2 + other)
    with pytest.raises(ValueError, match=f"loss uses.*{other.name}"):
        model.fit(np.ones((4, 3)), np.ones((4, 3)), verbose=0)
