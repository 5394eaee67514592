"""What layers hold in their attributes, wherever it lies: found, trained and saved.

Each case is a function of the library, run in Ganglion and in Keras.
"""

import collections
import copy
from typing import Any

import numpy as np
import pytest

import ganglion

Pair = collections.namedtuple("Pair", ["first", "second"])


def variable(keras: Any, size: int, trainable: bool = True) -> Any:
    return keras.Variable(np.ones(size, "float32"), trainable=trainable)


def sizes(variables: Any) -> list[int]:
    return [int(np.prod(variable.shape)) for variable in variables]


def layer_class(keras: Any, fill: Any) -> Any:
    """Return a layer that holds what `fill` puts into it, and scales by one of it."""

    @keras.saving.register_keras_serializable("tracking")
    class Holder(keras.layers.Layer):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            fill(keras, self)

        def call(self, x: Any) -> Any:
            for weight in self.weights:
                x = x * keras.ops.mean(weight)
            return x

    return Holder


def lists(keras: Any, layer: Any) -> None:
    layer.later = []
    layer.own = variable(keras, 2)
    layer.later.append(variable(keras, 3))
    layer.later.extend([variable(keras, 4, trainable=False), variable(keras, 5)])
    layer.later.insert(0, variable(keras, 6))
    layer.later += [variable(keras, 7)]


def nested(keras: Any, layer: Any) -> None:
    layer.table = {"z": variable(keras, 2), "a": [variable(keras, 3)]}
    layer.table["m"] = variable(keras, 4)
    layer.table.update({"q": variable(keras, 5)})
    layer.pair = (variable(keras, 6), Pair(variable(keras, 7), variable(keras, 8)))
    layer.ordered = collections.OrderedDict(k=variable(keras, 9))
    layer.ordered["l"] = variable(keras, 10)


def taken_out(keras: Any, layer: Any) -> None:
    layer.kept = [variable(keras, size) for size in (2, 3, 4, 5)]
    layer.kept.pop()
    del layer.kept[0]
    layer.kept.remove(layer.kept[0])
    layer.table = {"a": variable(keras, 6), "b": variable(keras, 7)}
    layer.table.pop("a")
    layer.gone = variable(keras, 8)
    del layer.gone
    layer.empty = [variable(keras, 9)]
    layer.empty.clear()


def layers(keras: Any, layer: Any) -> None:
    layer.first, layer.second = [], []
    for number in range(2):
        for place, units in ((layer.first, 2), (layer.second, 3)):
            dense = keras.layers.Dense(units, name=f"{units}_{number}")
            dense.build((None, 4))
            place.append(dense)
    inner = keras.layers.BatchNormalization()
    inner.build((None, 5))
    layer.deep = {"x": [inner]}


FILLS = [lists, nested, taken_out, layers]


def summary(keras: Any, fill: Any) -> dict[str, Any]:
    """Return all that can be asked of what a layer holds."""
    layer = layer_class(keras, fill)()
    lists = {"weights": sizes(layer.weights), "variables": sizes(layer.variables)}
    for frozen in (False, True, False):
        layer.trainable = not frozen
        lists[f"trainable {frozen}"] = [weight.trainable for weight in layer.weights]
        lists[f"trains {frozen}"] = sizes(layer.trainable_weights)
        lists[f"fixed {frozen}"] = sizes(layer.non_trainable_weights)
    return lists


@pytest.mark.rivals
@pytest.mark.parametrize("fill", FILLS)
def test_what_is_held_is_what_keras_finds(keras, fill):
    assert summary(ganglion, fill) == summary(keras, fill)


@pytest.mark.parametrize(
    ("fill", "wanted"),
    [
        (lists, [2, 3, 5, 6, 7, 4]),
        (nested, [2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (taken_out, [4, 7]),
        (layers, [8, 2, 12, 3, 8, 2, 12, 3, 5, 5, 5, 5]),
    ],
)
def test_what_is_held_is_found_in_order(fill, wanted):
    assert sizes(layer_class(ganglion, fill)().weights) == wanted


def model_with(keras: Any, fill: Any) -> Any:
    model = keras.Sequential(
        [keras.Input((1,)), layer_class(keras, fill)(), keras.layers.Dense(1)]
    )
    model.compile(keras.optimizers.SGD(0.1), "mse")
    return model


@pytest.mark.parametrize("fill", [lists, nested])
def test_what_is_held_is_trained(fill):
    model = model_with(ganglion, fill)
    before = [weight.numpy() for weight in model.trainable_weights]
    model.fit(np.ones((4, 1)), np.full((4, 1), 3.0), verbose=0)
    for old, weight in zip(before, model.trainable_weights, strict=True):
        assert (weight.numpy() != old).all(), weight.path


@pytest.mark.rivals
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("suffix", ["weights.h5", "keras"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_files_go_both_ways(keras, tmp_path, fill, suffix, ours_first):
    path = str(tmp_path / f"model.{suffix}")
    libraries = (ganglion, keras) if ours_first else (keras, ganglion)
    writer, reader = (model_with(library, fill) for library in libraries)
    rng = np.random.default_rng(3)
    for weight in writer.weights:
        weight.assign(rng.normal(size=tuple(weight.shape)).astype("float32"))
    if suffix == "keras":
        writer.save(path)
        holder = type(reader.layers[0])
        load = libraries[1].saving.load_model
        reader = load(path, custom_objects={"tracking>Holder": holder})
    else:
        writer.save_weights(path)
        reader.load_weights(path)
    for mine, theirs in zip(reader.weights, writer.weights, strict=True):
        np.testing.assert_array_equal(mine.numpy(), theirs.numpy())


def test_containers_that_cannot_tell_are_looked_through():
    layer = ganglion.layers.Layer()
    layer.queue = collections.deque([variable(ganglion, 2)])
    layer.queue.append(variable(ganglion, 3))
    layer.groups = collections.defaultdict(list)
    layer.groups["a"].append(variable(ganglion, 4))
    layer.table = {}
    layer.table.setdefault("k", variable(ganglion, 5))
    layer.slots = [None]
    layer.slots[0] = variable(ganglion, 6)
    inner: list[Any] = []
    layer.slots.append(inner)
    inner.append(variable(ganglion, 7))
    layer.bag = {ganglion.layers.Dense(1, name="one")}
    layer.bag.add(ganglion.layers.Dense(1, name="two"))
    assert sorted(sizes(layer.weights)) == [2, 3, 4, 5, 6, 7]
    names = [layer.name for layer in layer._flatten_layers(include_self=False)]
    assert sorted(names) == ["one", "two"]
    assert isinstance(layer.groups, collections.defaultdict)


def test_containers_stay_what_they_were_to_their_owner():
    layer = ganglion.layers.Layer()
    layer.sizes, layer.names, layer.pair = [1, 2], {"a": 1}, (1, [2])
    assert layer.sizes == [1, 2]
    assert layer.names == {"a": 1}
    assert layer.pair == (1, [2])
    assert isinstance(layer.sizes, list)
    assert isinstance(layer.names, dict)
    shape = (1, 2)
    layer.shape_of_mine = shape
    assert layer.shape_of_mine is shape
    assert type(copy.deepcopy(layer.sizes)) is list


def test_a_copied_layer_has_variables_of_its_own():
    layer = layer_class(ganglion, lists)()
    other = copy.deepcopy(layer)
    assert sizes(other.weights) == sizes(layer.weights)
    assert not {id(weight) for weight in other.weights} & {
        id(weight) for weight in layer.weights
    }
    other.own = other.own  # known, not twice
    assert len(other.weights) == len(layer.weights)


def test_seeds_are_found_in_containers():
    class Noisy(ganglion.layers.Layer):
        def __init__(self):
            super().__init__()
            self.generators = {"a": [ganglion.random.SeedGenerator(1)]}
            self.inner = ganglion.layers.Dropout(0.5)

    layer = Noisy()
    assert len(layer.variables) == 2
    assert layer.weights == []
    assert layer.trainable_variables == []
    assert len(layer.non_trainable_variables) == 2


def test_layers_of_attributes_belong_to_a_functional_model():
    class Extended(ganglion.Model):
        def __init__(self):
            x = ganglion.Input((2,))
            super().__init__(x, ganglion.layers.Dense(1)(x))
            self.extra = [ganglion.layers.Dense(3)]
            self.extra[0].build((None, 1))
            self.scale = variable(ganglion, 7)

    model = Extended()
    assert len(model.layers) == 2
    assert sizes(model.weights) == [7, 2, 1, 3, 3]


def test_a_weight_made_in_init_is_named_after_its_layer():
    class Scale(ganglion.layers.Layer):
        def __init__(self):
            super().__init__()
            self.scale = self.add_weight(shape=(1,), name="scale")

    assert Scale().scale.path == "scale/scale"
    dense = ganglion.layers.Dense(1)
    dense.build((None, 1))
    assert dense.kernel.path == "dense/kernel"


def test_attributes_may_have_any_name():
    class Named(ganglion.layers.Layer):
        def __init__(self):
            super().__init__()
            self.sublayers = [ganglion.layers.Dense(1)]
            self.walk = self.own_variables = self.seed_generators = None
            self._stack = [ganglion.layers.Dense(2)]

    layer = Named()
    assert layer.weights == []
    assert len(list(layer._flatten_layers(include_self=False))) == 2


# ---- trainable ---------------------------------------------------------------------


def flags(keras: Any, when: str, what: str) -> list[Any]:
    """Freeze a layer or a nested model at some time; return what trains then."""
    inner = keras.Sequential([keras.layers.Dense(2), keras.layers.BatchNormalization()])
    model = keras.Sequential([inner, keras.layers.Dense(1)])
    chosen = {"inner": inner, "layer": inner.layers[1], "model": model}[what]
    if when == "before build":
        chosen.trainable = False
    model.build((None, 3))
    if when != "before build":
        chosen.trainable = False
    flags = [weight.trainable for weight in model.weights]
    flags += sizes(model.trainable_weights)
    chosen.trainable = True
    flags += [weight.trainable for weight in model.weights]
    return flags


@pytest.mark.rivals
@pytest.mark.parametrize("what", ["inner", "layer", "model"])
@pytest.mark.parametrize("when", ["before build", "after build"])
def test_trainable_of_variables_follows_the_layer(keras, when, what):
    assert flags(ganglion, when, what) == flags(keras, when, what)


def test_a_frozen_variable_stays_as_it_is():
    model = ganglion.Sequential([ganglion.Input((2,)), ganglion.layers.Dense(1)])
    model.layers[0].bias.trainable = False
    model.compile("sgd", "mse")
    kernel, bias = model.get_weights()
    model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
    assert (model.layers[0].kernel.numpy() != kernel).any()
    np.testing.assert_array_equal(model.layers[0].bias.numpy(), bias)
    frozen = ganglion.layers.Dense(1, trainable=False)
    frozen.build((None, 2))
    assert not frozen.kernel.trainable
    frozen.trainable = True
    assert frozen.kernel.trainable


# ---- metrics -----------------------------------------------------------------------


def metric_model(keras: Any, place: str) -> Any:
    class Inner(keras.layers.Layer):
        def __init__(self, metric: Any) -> None:
            super().__init__()
            self.held = [metric]

        def call(self, x: Any) -> Any:
            self.held[0].update_state(x)
            return x

    class Measured(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1, kernel_initializer="ones")
            self.tracker = keras.metrics.Mean(name="size")
            self.inner = None
            if place == "layer":
                self.inner = {"a": Inner(keras.metrics.Mean(name="inside"))}

        def call(self, x: Any) -> Any:
            y = self.dense(x)
            self.tracker.update_state(y)
            return self.inner["a"](y) if self.inner else y

        @property
        def metrics(self) -> Any:
            if place == "property":
                return [self.tracker]
            return super().metrics

    model = Measured()
    model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return model


@pytest.mark.rivals
@pytest.mark.parametrize("place", ["model", "layer", "property"])
def test_metrics_in_attributes_are_reported_as_in_keras(keras, place):
    x, y = np.arange(8.0).reshape(4, 2), np.ones((4, 1))
    reports = []
    for library in (ganglion, keras):
        model = metric_model(library, place)
        history = model.fit(
            x, y, epochs=2, verbose=0, shuffle=False, validation_data=(x, y)
        )
        reports.append(
            {
                "fit": history.history,
                "evaluate": model.evaluate(x, y, verbose=0, return_dict=True),
                "list": model.evaluate(x, y, verbose=0),
                "batch": model.test_on_batch(x, y, return_dict=True),
            }
        )
    ours, theirs = reports
    assert sorted(ours["fit"]) == sorted(theirs["fit"])
    for name, values in theirs["fit"].items():
        np.testing.assert_allclose(ours["fit"][name], values, rtol=1e-5)
    for verb in ("evaluate", "batch"):
        assert ours[verb] == pytest.approx(theirs[verb], rel=1e-5)
    np.testing.assert_allclose(ours["list"], theirs["list"], rtol=1e-5)


def test_metrics_in_attributes_start_anew_with_every_epoch():
    model = metric_model(ganglion, "model")
    x, y = np.ones((4, 2)), np.full((4, 1), 2.0)
    history = model.fit(x, y, epochs=3, batch_size=2, verbose=0).history
    assert history["size"] == pytest.approx([2.0, 2.0, 2.0], abs=1e-6)
    assert model.metrics_names == ["loss", "mae", "size"]


# ---- losses ------------------------------------------------------------------------


def adding(keras: Any) -> Any:
    class Adding(keras.layers.Layer):
        def call(self, x: Any) -> Any:
            self.add_loss(keras.ops.sum(x))
            return x

    inner = keras.layers.ActivityRegularization(l1=0.5)
    dense = keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer="l2")
    return keras.Sequential([Adding(), inner, dense])


@pytest.mark.rivals
def test_losses_after_a_call_on_arrays(keras):
    losses = []
    for library in (ganglion, keras):
        model = adding(library)
        model(np.ones((2, 3), "float32"))
        model(np.ones((4, 3), "float32"))
        losses.append([float(loss) for loss in model.losses])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    assert len(losses[0]) == 3


def test_compute_loss_sees_the_losses_of_its_layers():
    class Summed(ganglion.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return ganglion.ops.sum(ganglion.ops.stack(self.losses))

    model, plain = Summed(adding(ganglion).layers), adding(ganglion)
    model.compile(ganglion.optimizers.SGD(0.0), "mse")
    x = np.ones((2, 3), "float32")
    plain(x)
    wanted = sum(float(loss) for loss in plain.losses)
    assert model.train_on_batch(x, np.ones((2, 1))) == pytest.approx(wanted, rel=1e-6)


# ---- overwrite_with_gradient -------------------------------------------------------


def overwritten(keras: Any, **options: Any) -> list[list[float]]:
    first, second = (keras.Variable([1.0, 2.0]) for _ in range(2))
    first.overwrite_with_gradient = True
    optimizer = keras.optimizers.SGD(0.5, **options)
    for scale in (1.0, 3.0, 2.0):
        grads = [keras.ops.convert_to_tensor([scale, -scale])] * 2
        optimizer.apply_gradients(zip(grads, (first, second), strict=True))
    return [variable.numpy().tolist() for variable in (first, second)]


@pytest.mark.rivals
@pytest.mark.parametrize(
    "options",
    [{}, {"clipnorm": 0.5}, {"weight_decay": 0.1}, {"gradient_accumulation_steps": 2}],
)
def test_overwrite_with_gradient(keras, options):
    ours, theirs = overwritten(ganglion, **options), overwritten(keras, **options)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_overwrite_with_gradient_of_a_layer():
    class Scale(ganglion.layers.Layer):
        def build(self, shape):
            self.scale = self.add_weight(
                (2,), "ones", overwrite_with_gradient=True, name="scale"
            )

        def call(self, x):
            return x * self.scale

    model = ganglion.Sequential([ganglion.Input((2,)), Scale()])
    model.compile(ganglion.optimizers.SGD(0.1), "mse")
    model.fit(np.ones((4, 2)), np.zeros((4, 2)), verbose=0)
    np.testing.assert_allclose(model.get_weights()[0], [1.0, 1.0])
