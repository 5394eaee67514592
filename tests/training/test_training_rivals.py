"""The same training in Keras, from the same weights on the same batches."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case, is_channels_first

import ganglion
from ganglion import recipes
from ganglion.datasets import glyphs

pytestmark = [pytest.mark.rivals, pytest.mark.slow]

STEPS = 6  # a bug shows in the second one; Keras takes 30 ms for each
# Keras on TensorFlow rounds hyperparameters to float32: these are exact in both.
_MOMENTS = {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2.0**-20}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"learning_rate": 2.0**-5, "momentum": 0.875, "nesterov": True},
    "Adam": {"learning_rate": 2.0**-7, **_MOMENTS},
    "AdamW": {"learning_rate": 2.0**-7, "weight_decay": 2.0**-6, **_MOMENTS},
    "RMSprop": {
        "learning_rate": 2.0**-9,
        "rho": 0.875,
        "momentum": 0.5,
        "epsilon": 2.0**-20,
        "centered": True,
    },
    "Adagrad": {
        "learning_rate": 2.0**-6,
        "initial_accumulator_value": 0.125,
        "epsilon": 2.0**-20,
    },
    "Adadelta": {"learning_rate": 0.5, "rho": 0.9375, "epsilon": 2.0**-20},
    "Adamax": {"learning_rate": 2.0**-7, **_MOMENTS},
    "Nadam": {"learning_rate": 2.0**-7, **_MOMENTS},
    "Lion": {"learning_rate": 2.0**-10, "beta_1": 0.875, "beta_2": 0.96875},
    "Ftrl": {"learning_rate": 2.0**-5, "initial_accumulator_value": 0.125},
}
# Where TensorFlow rounds to float32 even so: Nadam's 0.96, the strength of a
# regularizer, the weights of a bilinear resize.
TOLERANCE = {
    "Nadam": 1e-4,
    "Dense": 1e-7,
    "ActivityRegularization": 1e-7,
    "UpSampling2D": 1e-3,
}
# TensorFlow has no other kernels.
FLOAT32_ALONE = {
    f"{prefix}{kind}Pooling3D"
    for prefix in ("", "Adaptive")
    for kind in ("Average", "Max")
}
RANDOM = {
    "Dropout",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "GaussianNoise",
    "GaussianDropout",
    "AlphaDropout",
}  # they draw other numbers than Keras; their own tests check what they draw


@pytest.fixture(autouse=True)
def _seeded() -> None:
    ganglion.utils.set_random_seed(1)


@pytest.fixture
def float_type(request: Any, keras: Any) -> Any:
    """Compute in this type; in float64 only a bug makes a difference in a few steps."""
    set_floats(keras, request.param)
    yield request.param
    set_floats(keras, "float32")


def set_floats(keras: Any, name: str) -> None:
    ganglion.config.set_floatx(name)
    keras.config.set_floatx(name)
    keras.config.set_dtype_policy(name)  # it does not follow once it was asked for


def one_case_per_layer() -> list[Case]:
    """Choose the most demanding case of each layer: the one with most arguments."""
    chosen: dict[str, Case] = {}
    for case in CASES:
        if case.layer in RANDOM or case.shapes[0][:1] == case.shapes[0]:
            continue
        if is_channels_first(case) and "Conv" in case.layer:
            continue  # TensorFlow trains them on a GPU alone
        best = chosen.get(case.layer)
        if best is None or len(case.arguments) > len(best.arguments):
            chosen[case.layer] = case
    return list(chosen.values())


def small_model(api: Any, case: Case) -> Any:
    """Put a layer between its inputs and a dense output."""
    kind = "int32" if case.classes else None
    inputs = [api.Input(shape[1:], dtype=kind) for shape in case.shapes]
    entry = inputs if len(inputs) > 1 else inputs[0]
    outputs = case.call(case.make(api.layers), entry)
    features = outputs if len(outputs.shape) == 2 else api.layers.Flatten()(outputs)
    return api.Model(inputs, api.layers.Dense(2, activation="tanh")(features))


def train(model: Any, optimizer: Any, x: Any, y: np.ndarray) -> list[float]:
    model.compile(optimizer, loss="mse", **no_jit(model))
    return [float(model.train_on_batch(x, y)) for _ in range(STEPS)]


def no_jit(model: Any) -> dict[str, Any]:
    """XLA takes seconds to compile each small model, and other sums."""
    return {} if isinstance(model, ganglion.Model) else {"jit_compile": False}


def numbered(cases: list[Case]) -> list[Any]:
    names = list(OPTIMIZERS)
    results = []
    for number, case in enumerate(cases):
        name = names[number % len(names)]
        floats = "float32" if case.layer in FLOAT32_ALONE else "float64"
        results.append(pytest.param(case, name, floats, id=f"{case.layer}-{name}"))
    return results


@pytest.mark.parametrize(
    ("case", "name", "float_type"),
    numbered(one_case_per_layer()),
    indirect=["float_type"],
)
@pytest.mark.sampled(2)
def test_every_layer_trains_as_in_keras(
    case: Case, name: str, float_type: str, keras: Any
) -> None:
    ours, theirs = small_model(ganglion, case), small_model(keras, case)
    theirs.set_weights(ours.get_weights())
    x = case.inputs(seed=1)
    if "Embedding" in case.layer:
        # Keras on TensorFlow squares the gradients of a repeated row one by one.
        x = np.arange(x.size, dtype="int32").reshape(x.shape)
    rows = len(x[0] if isinstance(x, list) else x)
    y = np.random.default_rng(2).uniform(-1, 1, (rows, 2)).astype(float_type)
    mine = train(ours, getattr(ganglion.optimizers, name)(**OPTIMIZERS[name]), x, y)
    other = train(theirs, getattr(keras.optimizers, name)(**OPTIMIZERS[name]), x, y)
    rounded = max(TOLERANCE.get(name, 1e-9), TOLERANCE.get(case.layer, 1e-9))
    tolerance = rounded if float_type == "float64" else 1e-3
    np.testing.assert_allclose(mine, other, rtol=tolerance)


def digit_model(api: Any) -> Any:
    return api.Sequential(
        [
            api.Input((12, 12, 1)),
            api.layers.Conv2D(6, 3, activation="relu"),
            api.layers.BatchNormalization(),
            api.layers.MaxPooling2D(),
            api.layers.Flatten(),
            api.layers.Dense(10, activation="softmax"),
        ]
    )


@pytest.mark.parametrize("float_type", ["float64"], indirect=True)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_trains_a_network_as_in_keras(
    name: str, float_type: str, keras: Any
) -> None:
    rng = np.random.default_rng(3)
    ours, theirs = digit_model(ganglion), digit_model(keras)
    theirs.set_weights(ours.get_weights())
    losses = []
    for api, model in ((ganglion, ours), (keras, theirs)):
        optimizer = getattr(api.optimizers, name)(**OPTIMIZERS[name])
        model.compile(optimizer, "sparse_categorical_crossentropy", **no_jit(model))
    for _ in range(STEPS):
        x = rng.uniform(size=(16, 12, 12, 1)).astype("float32")
        y = rng.integers(0, 10, 16)
        losses.append([float(m.train_on_batch(x, y)) for m in (ours, theirs)])
    mine, other = np.array(losses).T
    np.testing.assert_allclose(mine, other, rtol=TOLERANCE.get(name, 1e-9))


def keras_recipe(keras: Any, recipe: recipes.Recipe) -> Any:
    stack = [keras.Input(recipe.input_shape)]
    stack += [getattr(keras.layers, k)(**arguments) for k, arguments in recipe.layers]
    model = keras.Sequential(stack)
    kind, options = recipe.optimizer
    optimizer = getattr(keras.optimizers, kind)(**options)
    metrics = list(recipe.metrics)
    model.compile(optimizer, loss=recipe.loss, metrics=metrics, jit_compile=False)
    return model


def watcher(callbacks: Any) -> Any:
    """Return a callback that keeps the running loss after every batch."""

    class Watch(callbacks.Callback):  # type: ignore[name-defined]
        def on_train_begin(self, logs: Any = None) -> None:
            self.losses: list[float] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(logs["loss"])

    return Watch()


# With SGD 0.5 the first steps of mnist-cnn are chaotic: in float32 Keras and PyTorch
# part from each other, and from float64, by 1 % within ten steps. So it takes fewer in
# float32: those before rounding shows.
@pytest.mark.parametrize(
    ("name", "float_type", "steps"),
    [
        ("mnist-perceptron", "float32", 16),
        ("mnist-mlp", "float32", 16),
        ("mnist-mlp", "float64", 16),
        ("mnist-cnn", "float64", 6),
        ("mnist-cnn", "float32", 3),
    ],
    indirect=["float_type"],
)
@pytest.mark.sampled(2)
def test_first_epoch_of_the_recipes_equals_keras(
    name: str, float_type: str, steps: int, keras: Any
) -> None:
    recipe = recipes.get(name)
    # Keras multiplies by a float32 1/255 even in float64: scale the pixels before.
    recipe = dataclasses.replace(recipe, layers=recipe.layers[1:])
    # The last batch is smaller.
    (x, y), _ = glyphs.load_data(train=128 * steps - 48, test=10)
    x, y = recipes.prepared(recipe, x, y)
    x = x.astype(float_type) / 255
    ours, theirs = recipes.build(recipe), keras_recipe(keras, recipe)
    assert ours.count_params() == theirs.count_params() == recipe.parameters
    theirs.set_weights(ours.get_weights())
    courses = []
    for model, api in ((ours, ganglion), (theirs, keras)):
        watch = watcher(api.callbacks)
        model.fit(x, y, batch_size=128, shuffle=False, verbose=0, callbacks=[watch])
        courses.append(watch.losses)
    assert len(courses[0]) == steps
    tolerance = 1e-9 if float_type == "float64" else 1e-3
    np.testing.assert_allclose(*courses, rtol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-cnn"])
def test_first_steps_of_the_recipes_equal_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    recipe = recipes.get(name)
    (x, y), _ = glyphs.load_data(train=384, test=10)
    x, y = recipes.prepared(recipe, x, y)
    ours = recipes.build(recipe)
    net = torch_recipe(torch, recipe, ours)
    step = torch.optim.SGD(net.parameters(), lr=recipe.optimizer[1]["learning_rate"])
    for start in range(0, 3 * 128, 128):
        rows = slice(start, start + 128)
        mine = ours.train_on_batch(x[rows], y[rows])[0]
        pixels = torch.tensor(x[rows].astype("float32") / 255)
        logits = net(pixels.reshape(128, 1, 28, 28))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(y[rows]).long())
        step.zero_grad()
        loss.backward()
        step.step()
        assert mine == pytest.approx(loss.item(), rel=1e-3)


def torch_recipe(torch: Any, recipe: recipes.Recipe, ours: Any) -> Any:
    """Write the recipe's network in PyTorch, with our weights, up to the logits."""
    stack: list[Any] = []
    for layer in ours.layers:
        kind, weights = type(layer).__name__, layer.get_weights()
        tensors = [torch.tensor(weight) for weight in weights]
        gradients_of: Any = None
        if kind == "Dense":
            gradients_of = torch.nn.Linear(*tensors[0].shape)
            _give(torch, gradients_of, tensors[0].T, tensors[1])
        elif kind == "Conv2D":
            kh, kw, cin, cout = tensors[0].shape
            gradients_of = torch.nn.Conv2d(cin, cout, (kh, kw))
            _give(torch, gradients_of, tensors[0].permute(3, 2, 0, 1), tensors[1])
        elif kind == "BatchNormalization":
            norm = torch.nn.BatchNorm1d if len(stack) > 8 else torch.nn.BatchNorm2d
            gradients_of = norm(len(tensors[0]), eps=1e-3)
        elif kind == "MaxPooling2D":
            gradients_of = torch.nn.MaxPool2d(2)
        elif kind == "Flatten":
            # Channels last in Keras, first in PyTorch: put them last before the rows.
            stack.append(channels_last(torch))
            gradients_of = torch.nn.Flatten()
        if gradients_of is not None:
            stack.append(gradients_of)
        activation = getattr(layer, "activation", None)
        if activation is ganglion.activations.relu:
            stack.append(torch.nn.ReLU())
    return torch.nn.Sequential(*stack)


def channels_last(torch: Any) -> Any:
    class Move(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x.permute(0, 2, 3, 1)

    return Move()


def _give(torch: Any, module: Any, weight: Any, bias: Any) -> None:
    with torch.no_grad():
        module.weight.copy_(weight)
        module.bias.copy_(bias)
