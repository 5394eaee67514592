"""clone_model with all of its options, beside Keras."""

from typing import Any

import numpy as np
import pytest
from keras_programs import errors_of

import ganglion

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


def stack(keras: Any) -> Any:
    return keras.Sequential(
        [
            keras.Input((4,), name="x"),
            keras.layers.Dense(5, name="a"),
            keras.layers.Dropout(0.5, name="b"),
            keras.layers.Dense(2, name="c"),
        ],
        name="stack",
    )


def graph(keras: Any) -> Any:
    x = keras.Input((4,), name="x")
    shared = keras.layers.Dense(4, name="shared")
    inner = keras.Sequential(
        [keras.Input((4,)), keras.layers.Dense(4, name="deep")], name="inner"
    )
    y = shared(inner(shared(x))) * 2.0 + x
    return keras.Model(x, {"y": keras.layers.Dense(1, name="end")(y)}, name="graph")


def own_graph(keras: Any) -> Any:
    class Own(keras.Model):
        pass

    x = keras.Input((4,), name="x")
    return Own(x, keras.layers.Dense(2, name="end")(x), name="own")


def wider(keras: Any) -> Any:
    def clone(layer: Any) -> Any:
        config = layer.get_config()
        if isinstance(layer, keras.layers.Dense) and config["units"] > 1:
            config["use_bias"] = False
        return type(layer).from_config(config)

    return clone


def described(model: Any) -> Any:
    outputs = model(X)
    outputs = outputs["y"] if isinstance(outputs, dict) else outputs
    shapes = [tuple(weight.shape) for weight in model.weights]
    # Keras names an input after that of the model, whichever tensor it is.
    names = [layer.name for layer in model.layers if layer.name not in ("x", "other")]
    return names, shapes, tuple(outputs.shape), model.name


def clones(keras: Any) -> list[Any]:
    clone = keras.models.clone_model
    calls: list[str] = []

    def called(layer: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(getattr(layer, "name", "op").split("_")[0])
        return layer(*args, **kwargs)

    new_input = keras.Input((4,), name="other")
    results = [
        described(clone(stack(keras))),
        described(clone(graph(keras))),
        described(clone(stack(keras), clone_function=wider(keras))),
        described(clone(graph(keras), clone_function=wider(keras))),
        described(clone(graph(keras), clone_function=wider(keras), recursive=True)),
        described(clone(stack(keras), input_tensors=new_input)),
        described(clone(graph(keras), input_tensors=new_input)),
        described(clone(graph(keras), call_function=called)),
        described(clone(graph(keras), recursive=True)),
        described(clone(own_graph(keras), clone_function=wider(keras))),
    ]
    layers = [name for name in calls if name in ("shared", "inner", "end")]
    return [*results, layers]


@pytest.mark.rivals
def test_as_keras(keras):
    for ours, theirs in zip(clones(ganglion), clones(keras), strict=True):
        assert ours == theirs


def refusals(keras: Any) -> list[type]:
    class Own(keras.Model):
        def call(self, x):
            return x

    clone = keras.models.clone_model
    calls = [
        lambda: clone(stack(keras), call_function=lambda layer, x: layer(x)),
        lambda: clone(Own(), clone_function=lambda layer: layer),
        lambda: clone(Own(), call_function=lambda layer, x: layer(x)),
        lambda: clone(graph(keras), input_tensors=X),
        lambda: clone(stack(keras), input_tensors=X),
        lambda: clone(graph(keras), input_tensors=[keras.Input((4,))] * 2),
        lambda: clone(graph(keras), other=1),
    ]
    return errors_of(calls)


@pytest.mark.rivals
def test_refusals_as_keras(keras):
    assert refusals(ganglion) == refusals(keras)


def test_a_clone_shares_no_weights_and_stays_compiled():
    model = graph(ganglion)
    model.compile("sgd", "mse")
    clone = ganglion.models.clone_model(model, clone_function=wider(ganglion))
    assert clone.compiled
    assert not {id(w) for w in clone.weights} & {id(w) for w in model.weights}
    clone.fit(X, {"y": np.ones((3, 1))}, verbose=0)
