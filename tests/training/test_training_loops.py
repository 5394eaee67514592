"""Epochs, steps and early ends of `fit`, `evaluate` and `predict`, as in Keras."""

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import ganglion

BATCHES = 4


def model_of(keras: Any) -> Any:
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((2, 1), number, "float32"), np.ones((2, 1), "float32")


def generator(count: int | None):
    numbers = itertools.count() if count is None else range(count)
    for number in numbers:
        yield batch(number)


def data_set(keras: Any, count: int = BATCHES) -> Any:
    class Numbered(keras.utils.PyDataset):
        def __len__(self):
            return count

        def __getitem__(self, index):
            return batch(index)

    return Numbered()


def loader(count: int = BATCHES) -> Any:
    torch = pytest.importorskip("torch")
    rows = torch.utils.data.TensorDataset(torch.ones(2 * count, 1), torch.ones(8, 1))
    return torch.utils.data.DataLoader(rows, batch_size=2)


def source(keras: Any, kind: str) -> dict[str, Any]:
    """Return the data of `fit`: four batches, or as many as the kind says."""
    if kind == "arrays":
        x = np.ones((2 * BATCHES, 1), "float32")
        return {"x": x, "y": x, "batch_size": 2}
    if kind == "data set":
        return {"x": data_set(keras)}
    if kind == "loader":
        return {"x": loader()}
    _, _, count = kind.partition(" ")
    return {"x": generator(int(count) if count else None)}


def hooks(keras: Any, seen: list[str]) -> Any:
    return keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(f"epoch {epoch}"),
        on_train_batch_end=lambda step, logs: seen.append(f"{step}"),
        on_epoch_end=lambda epoch, logs: seen.append(" ".join(sorted(logs))),
    )


class Steps:
    """What one call did: the hooks that ran, and how often it ran out of data."""

    def __init__(self, keras: Any) -> None:
        self.keras, self.seen, self.warned = keras, list[str](), 0

    def run(self, verb: str, kind: str, **options: Any) -> Any:
        keras = self.keras
        model, data = model_of(keras), source(keras, kind)
        if verb == "predict":
            data.pop("y", None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            calls = [hooks(keras, self.seen), self._counter(verb)]
            result = getattr(model, verb)(**data, **options, verbose=0, callbacks=calls)
        texts = [str(warning.message) for warning in caught]
        self.warned = sum("Your input ran out of data" in text for text in texts)
        return result

    def _counter(self, verb: str) -> Any:
        seen = self.seen

        class Counter(self.keras.callbacks.Callback):
            def on_test_batch_end(self, step, logs=None):
                seen.append(f"test {step}")

            def on_predict_batch_end(self, step, logs=None):
                seen.append(f"predict {step}")

        return Counter()


CASES = [
    ("fit", "arrays", {"epochs": 3, "steps_per_epoch": 5}),
    ("fit", "arrays", {"epochs": 4, "steps_per_epoch": 3}),
    ("fit", "arrays", {"epochs": 3, "steps_per_epoch": 2}),
    ("fit", "data set", {"epochs": 3, "steps_per_epoch": 5}),
    ("fit", "data set", {"epochs": 4, "steps_per_epoch": 3}),
    ("fit", "loader", {"epochs": 4, "steps_per_epoch": 3}),
    ("fit", "generator 7", {"epochs": 3, "steps_per_epoch": 3}),
    ("fit", "generator 4", {"epochs": 1}),
    ("evaluate", "arrays", {"steps": 3}),
    ("evaluate", "arrays", {"steps": 5}),
    ("evaluate", "data set", {"steps": 5}),
    ("evaluate", "generator 4", {"steps": 5}),
    ("predict", "arrays", {"steps": 5}),
    ("predict", "data set", {"steps": 3}),
    ("predict", "generator", {"steps": 3}),
]


@pytest.mark.rivals
@pytest.mark.parametrize(("verb", "kind", "options"), CASES)
def test_steps_and_warnings_are_those_of_keras(keras, verb, kind, options):
    ours, theirs = Steps(ganglion), Steps(keras)
    ours.run(verb, kind, **options)
    theirs.run(verb, kind, **options)
    assert ours.seen == theirs.seen
    assert ours.warned == theirs.warned


def test_an_epoch_ends_with_the_data():
    steps = Steps(ganglion)
    steps.run("fit", "arrays", epochs=4, steps_per_epoch=3)
    first_epoch, rest = ["0", "1", "2", "loss"], ["0", "loss"]
    assert steps.seen == [
        *(
            "epoch 0",
            *first_epoch,
            "epoch 1",
            *rest,
            "epoch 2",
            *first_epoch,
            "epoch 3",
            *rest,
        )
    ]
    assert steps.warned == 2


def test_a_data_set_goes_on_where_the_last_epoch_ended():
    asked = []

    class Noted(ganglion.utils.PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            asked.append(index)
            return batch(index)

        def on_epoch_begin(self):
            asked.append("begin")

        def on_epoch_end(self):
            asked.append("end")

    with pytest.warns(UserWarning, match="ran out of data"):
        model_of(ganglion).fit(
            Noted(), epochs=3, steps_per_epoch=3, shuffle=False, verbose=0
        )
    first = ["begin", 0, 1, 2, "end"]
    assert asked == [*first, "begin", 3, "end", *first]


VALIDATION = ["arrays", "data set", "loader", "generator 8"]


@pytest.mark.parametrize("training", ["arrays", "data set", "loader", "generator"])
@pytest.mark.parametrize("held_out", VALIDATION)
@pytest.mark.parametrize("steps", [None, 3])
def test_validation_data_of_any_kind_with_training_data_of_any(
    training, held_out, steps
):
    held_out_data = source(ganglion, held_out)
    data = (
        (held_out_data["x"], held_out_data["y"])
        if held_out == "arrays"
        else held_out_data["x"]
    )
    count = Steps(ganglion)
    options = {"steps_per_epoch": 2} if training == "generator" else {}
    history = count.run(
        "fit",
        training,
        validation_data=data,
        validation_steps=steps,
        validation_batch_size=2 if steps else None,
        epochs=2 if steps else 1,
        **options,
    )
    wanted = 3 if steps else 8 if held_out == "generator 8" else BATCHES
    if held_out == "arrays" and training != "arrays" and not steps:
        wanted = 1  # of 32 rows, as in Keras
    tests = [event for event in count.seen if event.startswith("test")]
    assert tests == [f"test {step}" for step in range(wanted)] * len(history.epoch)
    assert np.isfinite(history.history["val_loss"]).all()


def test_validation_arrays_of_a_generator_are_measured_right():
    model = model_of(ganglion)
    x, y = np.arange(70.0).reshape(70, 1), np.ones((70, 1))
    history = model.fit(
        generator(None),
        steps_per_epoch=2,
        epochs=4,
        validation_data=(x, y, np.linspace(0, 1, 70)),
        validation_freq=2,
        verbose=0,
    )
    loss = model.evaluate(x, y, sample_weight=np.linspace(0, 1, 70), verbose=0)
    assert len(history.history["val_loss"]) == 2
    assert history.history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("kind", ["arrays", "data set", "loader", "generator"])
@pytest.mark.parametrize("verb", ["fit", "evaluate", "predict"])
def test_a_callback_may_stop_everything(kind, verb):
    seen = []

    class Stop(ganglion.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            seen.append(step)
            self.model.stop_training = step == 2

        def on_test_batch_end(self, step, logs=None):
            seen.append(step)
            self.model.stop_evaluating = step == 2
            assert step < 9, "never stopped"

        def on_predict_batch_end(self, step, logs=None):
            seen.append(step)
            self.model.stop_predicting = step == 2
            assert step < 9, "never stopped"

    data = source(ganglion, kind)
    if verb == "predict":
        data.pop("y", None)
    result = getattr(model_of(ganglion), verb)(**data, verbose=0, callbacks=[Stop()])
    assert seen == [0, 1, 2]
    if verb == "predict":
        assert result.shape == (6, 1)


def test_stopping_is_for_one_call():
    class Stop(ganglion.callbacks.Callback):
        def on_test_batch_end(self, step, logs=None):
            self.model.stop_evaluating = True

    model, x = model_of(ganglion), np.ones((8, 1))
    model.evaluate(x, x, batch_size=2, verbose=0, callbacks=[Stop()])
    assert model.stop_evaluating
    model.evaluate(x, x, batch_size=2, verbose=0)
    assert not model.stop_evaluating


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"epochs": -1}, "`epochs` must be an integer >= 0, got -1"),
        ({"steps_per_epoch": 0}, "`steps_per_epoch` must be an integer >= 1"),
        ({"steps_per_epoch": -2}, "`steps_per_epoch` must be an integer >= 1"),
        ({"steps_per_epoch": 1.5}, "`steps_per_epoch` must be an integer >= 1"),
        ({"batch_size": 0}, "`batch_size` must be an integer >= 1, got 0"),
        ({"batch_size": -1}, "`batch_size` must be an integer >= 1, got -1"),
        ({"validation_split": 1.0}, r"`validation_split` must lie in \[0, 1\)"),
        ({"validation_split": -0.1}, r"`validation_split` must lie in \[0, 1\)"),
        ({"validation_split": float("nan")}, r"`validation_split` must lie in"),
        ({"initial_epoch": 3, "epochs": 2}, "`initial_epoch` 3 lies beyond"),
        ({"initial_epoch": -1}, "`initial_epoch` must be an integer >= 0"),
        ({"validation_steps": 0}, "`validation_steps` must be an integer >= 1"),
        ({"validation_batch_size": 0}, "`validation_batch_size` must be an integer"),
        ({"validation_freq": 0}, "`validation_freq` must be an integer >= 1"),
    ],
)
def test_senseless_numbers_of_fit_are_refused(options, text):
    x = np.ones((4, 1))
    with pytest.raises(ValueError, match=text):
        model_of(ganglion).fit(x, x, verbose=0, **options)


@pytest.mark.parametrize("verb", ["evaluate", "predict"])
@pytest.mark.parametrize("name", ["steps", "batch_size"])
@pytest.mark.parametrize("value", [0, -3, 2.0])
def test_senseless_numbers_of_evaluate_and_predict_are_refused(verb, name, value):
    x = np.ones((4, 1))
    arrays = (x,) if verb == "predict" else (x, x)
    with pytest.raises(ValueError, match=f"`{name}` must be an integer >= 1"):
        getattr(model_of(ganglion), verb)(*arrays, verbose=0, **{name: value})


def test_no_epoch_is_no_mistake():
    x = np.ones((4, 1))
    assert model_of(ganglion).fit(x, x, epochs=0, verbose=0).epoch == []
    done = model_of(ganglion).fit(x, x, epochs=2, initial_epoch=2, verbose=0)
    assert done.epoch == []


class Hooks:
    """Notes the hooks of batches, with their numbers and losses."""

    def __init__(self, keras: Any) -> None:
        self.seen: list[Any] = []
        seen = self.seen

        class Noting(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                seen.append(f"train {batch} begins")

            def on_train_batch_end(self, batch, logs=None):
                seen.append(f"train {batch} ends with {logs['loss']:.4f}")

            def on_test_batch_begin(self, batch, logs=None):
                seen.append(f"test {batch} begins")

            def on_test_batch_end(self, batch, logs=None):
                seen.append(f"test {batch} ends with {logs['loss']:.4f}")

            def on_predict_batch_end(self, batch, logs=None):
                seen.append(f"predict {batch} ends")

            def on_epoch_end(self, epoch, logs=None):
                seen.append("epoch ends")

        self.callback = Noting()


@pytest.mark.rivals
@pytest.mark.parametrize("rows", [6, 7])
def test_steps_per_execution_calls_hooks_as_keras_does(keras, rows):
    results = []
    for library in (ganglion, keras):
        hooks = Hooks(library)
        dense = library.layers.Dense(1, kernel_initializer="ones")
        model = library.Sequential([library.Input((1,)), dense])
        model.compile("sgd", "mse", steps_per_execution=3)
        x = np.ones((rows, 1), "float32")
        options = {"batch_size": 1, "verbose": 0, "callbacks": [hooks.callback]}
        model.fit(x, 3 * x, epochs=2, validation_data=(x, x), **options)
        model.evaluate(x, x, **options)
        model.predict(x, **options)
        results.append(hooks.seen)
    assert results[0] == results[1]


def test_steps_per_execution_groups_the_hooks_of_a_stream():
    hooks, model = Hooks(ganglion), model_of(ganglion)
    model.compile("sgd", "mse", steps_per_execution=2)
    model.fit(generator(None), steps_per_epoch=4, verbose=0, callbacks=[hooks.callback])
    numbers = [event.split()[1] for event in hooks.seen if event.startswith("train")]
    assert numbers == ["0", "1", "2", "3"]
    older = []  # `on_batch_end` is grouped like `on_train_batch_end`
    noting = ganglion.callbacks.Callback()
    noting.on_batch_end = lambda batch, logs=None: older.append(batch)
    model.fit(np.ones((7, 1)), np.ones((7, 1)), 1, callbacks=[noting], verbose=0)
    assert older == [1, 3, 5, 7]
    with pytest.raises(ValueError, match="`steps_per_execution` must be an integer"):
        model.compile("sgd", "mse", steps_per_execution=0)


def test_what_pytorch_asks_of_its_own_modules_says_what_to_do() -> None:
    torch = pytest.importorskip("torch")
    model = ganglion.Sequential([ganglion.Input((3,)), ganglion.layers.Dense(1)]).to(
        "cpu"
    )
    outputs, targets = model(torch.ones(2, 3)), torch.ones(2, 1)
    with pytest.raises(TypeError, match="only devices"):
        model.to(torch.float16)
    with pytest.raises(NotImplementedError, match=r"keras\.optimizers"):
        torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"soft_margin_loss of PyTorch.*keras\.losses"):
        torch.nn.SoftMarginLoss()(outputs, targets)
    squares = (1 - np.asarray(outputs)) ** 2
    loss = torch.nn.MSELoss()(outputs, targets)  # which is an op of ours
    assert float(loss) == pytest.approx(squares.mean())
    np.testing.assert_array_equal(targets - outputs, 1 - outputs)
