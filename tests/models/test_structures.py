"""Inputs, outputs and labels in dictionaries, lists and tuples, paired as in Keras."""

import collections
import warnings
from typing import Any

import numpy as np
import pytest

import ganglion

Pair = collections.namedtuple("Pair", ["p", "q"])


def rows(value: float) -> np.ndarray:
    return np.full((2, 1), value, "float32")


# ---- inputs ------------------------------------------------------------------------


def inputs_of(keras: Any, kind: str) -> Any:
    tensors = {name: keras.Input((1,), name=name) for name in ("a", "b")}
    if kind == "dict_ba":
        return {"b": tensors["b"], "a": tensors["a"]}
    if kind == "dict_a":
        return {"a": tensors["a"]}
    if kind == "other_keys":
        return {"x": tensors["a"], "y": tensors["b"]}
    if kind == "list_ba":
        return [tensors["b"], tensors["a"]]
    if kind == "pair":
        return Pair(tensors["a"], tensors["b"])
    return tensors if kind == "dict_ab" else tensors["a"]


def reader(keras: Any, kind: str) -> Any:
    """Return a model of its inputs in a row: the first, ten times the second."""
    inputs = inputs_of(keras, kind)
    flat = list(inputs.values()) if isinstance(inputs, dict) else inputs
    if not isinstance(flat, (list, tuple)):
        flat = [flat]
    scaled = [keras.layers.Rescaling(10.0**n)(tensor) for n, tensor in enumerate(flat)]
    output = scaled[0] if len(scaled) == 1 else keras.layers.add(scaled)
    model = keras.Model(inputs, output)
    model.compile("sgd", "mse")
    return model


DATA = {
    "both": {"b": rows(1), "a": rows(2)},
    "one": {"a": rows(2)},
    "wrong": {"zzz": rows(3)},
    "half wrong": {"a": rows(2), "z": rows(9)},
    "extra": {"a": rows(2), "b": rows(1), "z": rows(9)},
    "other keys": {"x": rows(1), "y": rows(2)},
    "list": [rows(1), rows(2)],
    "tuple": (rows(1), rows(2)),
    "pair": Pair(rows(1), rows(2)),
    "array": rows(5),
    "three": [rows(1), rows(2), rows(3)],
}
KINDS = ["dict_ba", "dict_ab", "dict_a", "other_keys", "list_ba", "pair", "single"]


def answer(model: Any, verb: str, data: Any) -> Any:
    """Return the first number, or that there was an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if verb == "call":
                outputs = model(data)
            elif verb == "evaluate":
                outputs = model.evaluate(data, rows(0), verbose=0)
            elif verb == "predict":
                outputs = model.predict(data, verbose=0)
            else:
                outputs = model.predict_on_batch(data)
        except ValueError:
            return "ValueError"
    return float(np.ravel(np.array(outputs))[0])


@pytest.mark.rivals
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_paired_as_in_keras(keras, kind):
    ours, theirs = reader(ganglion, kind), reader(keras, kind)
    for name, data in DATA.items():
        wanted = answer(theirs, "call", data)
        assert answer(ours, "call", data) == wanted, name
        for verb in ("predict", "batch"):
            assert answer(ours, verb, data) == wanted, (name, verb)
        squared = wanted if wanted == "ValueError" else wanted**2
        assert answer(ours, "evaluate", data) == squared, name


def test_wrong_keys_are_named():
    model = reader(ganglion, "dict_ba")
    with pytest.raises(
        ValueError, match=r"input\(s\) 'b'.*keys 'b', 'a'.*got 'a', 'z'"
    ):
        model.predict(DATA["half wrong"], verbose=0)
    with pytest.raises(ValueError, match=r"keys 'b', 'a'.*not a list of 2"):
        model.fit(DATA["list"], rows(0), verbose=0)


def test_other_structures_are_taken_with_a_warning():
    with pytest.warns(UserWarning, match="structure of `inputs` doesn't match"):
        reader(ganglion, "dict_ab").predict(DATA["extra"], verbose=0)
    with pytest.warns(UserWarning, match="structure of `inputs` doesn't match"):
        reader(ganglion, "dict_ab")(DATA["list"])


def test_columns_that_the_model_does_not_read_may_be_anything():
    data = {"a": rows(1), "b": rows(2), "name": np.array(["x", "y"])}
    with pytest.warns(UserWarning, match="structure of `inputs`"):
        predictions = reader(ganglion, "dict_ab").predict(data, verbose=0)
    assert predictions[0, 0] == 21.0


# ---- outputs and labels --------------------------------------------------------------


def filled(kind: str, a: Any, b: Any, c: Any) -> Any:
    return {
        "dict of lists": {"u": [a, b], "c": c},
        "dict of dicts": {"u": {"p": a, "q": b}, "c": c},
        "list of lists": [[a, b], c],
        "list of dicts": [{"p": a, "q": b}, c],
        "dict of tuples": {"u": (a, b), "c": c},
        "list of tuples": [(a,), (b, c)],
        "pairs": Pair(a, Pair(b, c)),
        "dict of pairs": {"u": Pair(a, b), "c": c},
        "tuple": (a, b, c),
        "dict": {"c": c, "a": a, "b": b},
    }[kind]


NESTED = [
    "dict of lists",
    "dict of dicts",
    "list of lists",
    "list of dicts",
    "dict of tuples",
    "list of tuples",
    "pairs",
    "dict of pairs",
    "tuple",
    "dict",
]


def writer(keras: Any, kind: str, **options: Any) -> Any:
    x = keras.Input((1,))
    ends = [
        keras.layers.Dense(
            1, name=name, use_bias=False, kernel_initializer=constant(keras, value)
        )(x)
        for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))
    ]
    model = keras.Model(x, filled(kind, *ends))
    model.compile(keras.optimizers.SGD(0.0), **options)
    return model


def constant(keras: Any, value: float) -> Any:
    return keras.initializers.Constant(value)


def shown(structure: Any) -> Any:
    if isinstance(structure, dict):
        return {key: shown(inner) for key, inner in structure.items()}
    if isinstance(structure, (list, tuple)):
        return (type(structure).__name__, *map(shown, structure))
    return float(np.asarray(structure)[0, 0])


@pytest.mark.rivals
@pytest.mark.parametrize("kind", NESTED)
def test_nested_outputs_are_reported_as_in_keras(keras, kind):
    reports = []
    for library in (ganglion, keras):
        model = writer(
            library,
            kind,
            loss=filled(kind, "mse", "mae", "mse"),
            metrics=filled(kind, ["mae"], ["mae"], ["mse"]),
        )
        labels = filled(kind, rows(1), rows(4), rows(9))
        logs = model.evaluate(rows(3), labels, verbose=0, return_dict=True)
        reports.append(
            (
                shown(model.predict(rows(3), verbose=0)),
                {k: float(logs[k]) for k in logs},
            )
        )
    assert reports[0] == reports[1]


@pytest.mark.parametrize("kind", NESTED)
def test_nested_outputs_go_through_every_method(kind):
    model = writer(ganglion, kind, loss="mse")
    labels = filled(kind, rows(1), rows(4), rows(9))
    weights = filled(kind, np.ones(2), np.zeros(2), np.ones(2))
    assert shown(model.predict(rows(3), verbose=0)) == shown(
        filled(kind, rows(3), rows(6), rows(9))
    )
    assert shown(model.predict_on_batch(rows(3))) == shown(model(rows(3)))
    assert model.evaluate(rows(3), labels, verbose=0)[0] == 8.0
    assert model.train_on_batch(rows(3), labels)[0] == 8.0
    assert model.test_on_batch(rows(3), labels, weights)[0] == 4.0
    assert model.fit(rows(3), labels, verbose=0).history["loss"] == [8.0]
    batches = ((rows(3), labels) for _ in range(2))
    assert model.fit(batches, steps_per_epoch=2, verbose=0).history["loss"] == [8.0]


def test_a_subclass_may_return_a_named_tuple():
    class Two(ganglion.Model):
        def __init__(self):
            super().__init__()
            self.first, self.second = (ganglion.layers.Dense(1) for _ in range(2))

        def call(self, x):
            return Pair(self.first(x), self.second(x))

    predictions = Two().predict(np.ones((40, 2)), batch_size=16, verbose=0)
    assert isinstance(predictions, Pair)
    assert predictions.p.shape == predictions.q.shape == (40, 1)


@pytest.mark.parametrize("kind", ["dict", "tuple", "pairs"])
def test_labels_by_name_do_not_depend_on_the_order_of_keys(kind):
    model = writer(ganglion, kind, loss={"a": "mse", "b": "mae", "c": "mse"})
    for order in ("abc", "cab", "bca"):
        values = {"a": rows(1), "b": rows(4), "c": rows(7)}
        labels = {name: values[name] for name in order}
        logs = model.evaluate(rows(3), labels, verbose=0, return_dict=True)
        assert (logs["a_loss"], logs["loss"]) == (4, 10)


def test_labels_of_outputs_without_a_loss_may_be_missing():
    x = ganglion.Input((2,))
    ends = [ganglion.layers.Dense(1)(x) for _ in range(2)]
    model = ganglion.Model(x, ends)
    model.compile("sgd", loss=["mse", None])
    with pytest.warns(UserWarning, match="does not depend on"):
        model.fit(np.ones((4, 2)), [np.ones((4, 1)), None], verbose=0)


def test_a_loss_in_a_list_of_one():
    model = writer(ganglion, "dict", loss={"a": "mse", "b": ["mae"], "c": "mse"})
    labels = {"a": rows(1), "b": rows(4), "c": rows(9)}
    assert model.evaluate(rows(3), labels, verbose=0)[0] == 6.0


def test_compute_loss_may_split_an_output():
    class Split(ganglion.Model):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            parts = [y_pred[:, :1], y_pred[:, 1:]]
            return super().compute_loss(x, y, parts, sample_weight)

    x = ganglion.Input((3,))
    model = Split(x, ganglion.layers.Dense(2, kernel_initializer="zeros")(x))
    model.compile("sgd", loss=["mse", "mse"])
    labels = (np.ones((4, 1)), np.full((4, 1), 2.0))
    assert model.train_on_batch(np.ones((4, 3)), labels, return_dict=True)["loss"] == 5


def test_an_output_in_a_list_of_one_comes_alone():
    x = ganglion.Input((2,))
    y = ganglion.layers.Dense(1)(x)
    for ends in ([y], (y,)):
        model = ganglion.Model([x], ends)
        model.compile("sgd", ["mse"])
        assert model.predict(np.ones((3, 2)), verbose=0).shape == (3, 1)
        assert model.predict_on_batch(np.ones((3, 2))).shape == (3, 1)
        assert model(np.ones((3, 2), "float32")).shape == (3, 1)
        assert (model.input_shape, model.output_shape) == ((None, 2), (None, 1))
        model.fit(np.ones((3, 2)), [np.ones((3, 1))], verbose=0)


def test_the_shapes_of_several_ends_are_a_list_in_the_order_of_the_inputs():
    inputs = {"b": ganglion.Input((2,)), "a": ganglion.Input((3,))}
    joined = ganglion.layers.Concatenate()([inputs["a"], inputs["b"]])
    model = ganglion.Model(inputs, {"z": joined, "y": inputs["b"]})
    assert model.input_shape == [tuple(x.shape) for x in model.inputs]
    assert model.output_shape == [tuple(x.shape) for x in model.outputs]


@pytest.mark.parametrize("kind", ["tuple", "dict of tuples", "dict", "list of lists"])
def test_outputs_keep_their_structure_through_a_configuration(kind):
    model = writer(ganglion, kind, loss="mse")
    wanted = shown(model(rows(3)))
    again = ganglion.Model.from_config(model.get_config())
    clone = ganglion.models.clone_model(model)
    for rebuilt in (again, clone):
        assert shown(rebuilt(rows(3))) == wanted


def test_a_sequential_built_by_data_takes_other_sizes():
    model = ganglion.Sequential(
        [ganglion.layers.Conv2D(2, 3), ganglion.layers.GlobalMaxPooling2D()]
    )
    for size in (8, 10):
        predictions = model.predict(np.ones((1, size, size, 3)), verbose=0)
        assert predictions.shape == (1, 2)
    with pytest.raises(ValueError, match="incompatible with the layer"):
        model.predict(np.ones((1, 8, 8, 4)), verbose=0)
    fixed = ganglion.Sequential([ganglion.Input((8, 8, 3)), *model.layers])
    with pytest.raises(ValueError, match="expected shape="):
        fixed.predict(np.ones((1, 10, 10, 3)), verbose=0)


def test_the_batch_size_of_an_input_binds_no_data():
    x = ganglion.Input((2,), batch_size=3)
    model = ganglion.Model(x, ganglion.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    assert model(np.ones((2, 2), "float32")).shape == (2, 1)
    assert model.predict(np.ones((7, 2)), verbose=0).shape == (7, 1)
    model.fit(np.ones((5, 2)), np.ones((5, 1)), verbose=0)


def total_distance(library):
    def distance(y_true, y_pred):
        flat = map(library.tree.flatten, (y_true, y_pred))
        pairs = zip(*flat, strict=True)
        return sum(library.ops.mean(library.ops.abs(a - b), -1) for a, b in pairs)

    return distance


STRUCTURED_LOSSES = {
    "tuple for a list": lambda f: (lambda a, b: [a, b], (f, ["mse", "mae"])),
    "list for a tuple": lambda f: (lambda a, b: (a, b), [f, ("mse", "mae")]),
    "two of one output": lambda f: (lambda a, b: [a, b], ["mse", ["mse", f]]),
    "dict": lambda f: (lambda a, b: {"u": a, "v": b}, [f, {"u": "mse", "v": "mae"}]),
    "deep": lambda f: (
        lambda a, b: {"p": (a, b), "q": {"r": (a, b), "s": b}},
        {"p": [f, (None, "mse")], "q": [f, {"r": f}]},
    ),
}


@pytest.mark.rivals
@pytest.mark.parametrize("case", STRUCTURED_LOSSES)
def test_losses_of_several_outputs_at_once(keras, case):
    results = []
    for library in (ganglion, keras):
        outputs, loss = STRUCTURED_LOSSES[case](total_distance(library))
        x = library.Input((2,))
        ones = {"kernel_initializer": "ones"}
        layers = [library.layers.Dense(1, name=name, **ones)(x) for name in ("a", "b")]
        model = library.Model(x, outputs(*layers))
        weights = library.tree.map_structure(lambda _: 0.5, loss)
        model.compile("sgd", loss, loss_weights=None if case == "deep" else weights)
        rows = np.arange(8.0).reshape(4, 2)
        labels = outputs(rows[:, :1], rows[:, 1:])
        results.append(model.evaluate(rows, labels, verbose=0, return_dict=True))
    assert results[0] == pytest.approx(results[1])


@pytest.mark.parametrize(
    ("outputs", "error", "match"),
    [
        (lambda a: [a, a + 1], ValueError, "Expected keys .* in loss dict"),
        (
            lambda a: {"a": a, "b": a},
            KeyError,
            "in the `loss` argument, can't be found",
        ),
    ],
)
def test_losses_of_outputs_that_are_not_there(outputs, error, match):
    x = ganglion.Input((2,))
    model = ganglion.Model(x, outputs(ganglion.layers.Dense(1, name="a")(x)))
    model.compile("sgd", {"a": "mse", "c": "mse"})
    with pytest.raises(error, match=match):
        model.fit(np.ones((2, 2)), [np.ones((2, 1))] * 2, verbose=0)


# ---- state trees, and what a graph refuses ------------------------------------------


def named_model() -> Any:
    x = ganglion.Input((3,), name="foo")
    model = ganglion.Model(x, ganglion.layers.Dense(1, name="out")(x))
    model.compile("adam", "mse")
    return model


def test_state_trees_go_by_the_paths_of_variables():
    model = named_model()
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)
    state = model.get_state_tree(value_format="numpy_array")
    assert state["metrics_variables"]["loss"].keys() == {"total", "count"}
    assert int(state["optimizer_variables"]["adam"]["iteration"]) == 1
    other = named_model()
    other.set_state_tree({"trainable_variables": state["trainable_variables"]})
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])
    with pytest.raises(ValueError, match="no variable 'out/scale'"):
        other.set_state_tree({"trainable_variables": {"out": {"scale": 1.0}}})
    with pytest.raises(ValueError, match="Invalid `value_format`"):
        model.get_state_tree("json")


class Demanding(ganglion.layers.Layer):
    def call(self, x, other):
        return x


class Unforeseen(ganglion.layers.Layer):
    def call(self, x):
        return x + 1.0

    def compute_output_spec(self, *args, **kwargs):
        raise NotImplementedError


def test_layers_of_unknown_shapes_run_on_data():
    np.testing.assert_array_equal(ganglion.Sequential([Unforeseen()])(rows(1.0)), 2.0)


def sequential(*layers: Any) -> Any:
    return ganglion.Sequential([ganglion.Input((2,)), *layers])


@pytest.mark.parametrize(
    ("act", "match"),
    [
        (lambda: named_model()(np.ones((2, 3, 4))), "name 'foo' and path ''.*found"),
        (lambda: named_model()(None), '"foo" is not optional'),
        (lambda: named_model().predict([None]), '"foo" is not optional'),
        (lambda: sequential(Demanding()), "can only have a single positional"),
        (lambda: named_model()([rows(1.0)] * 2), r"expects 1 input\(s\)"),
        (lambda: ganglion.Sequential()(rows(1.0)), "it has no layers"),
        (lambda: sequential().add(ganglion.Input((2,))), "already been configured"),
        (
            lambda: sequential(ganglion.layers.Dense(1)).build((3, 4)),
            "already been configured to use input shape",
        ),
        (
            lambda: ganglion.Model(
                ganglion.Input((1,)), {"a": [ganglion.Input((1,)) * 2.0]}
            ),
            "Output with path `a.0` is not connected",
        ),
    ],
)
def test_graphs_refuse_in_the_words_of_keras(act, match):
    with pytest.raises(ValueError, match=match):
        act()


@pytest.mark.parametrize("make", [named_model, sequential])
def test_layers_are_not_assigned(make):
    with pytest.raises(AttributeError, match="layers` attribute is reserved"):
        make().layers = []
