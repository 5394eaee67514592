"""Random small models train as they do in Keras, to rounding: a net for wrong answers.

`--random-models 2000` runs more of them; `--random-model 17` runs that one alone.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import random_models
from optimizer_cases import ALL_SCHEDULES, NAMES

import ganglion
from ganglion import config, tree

pytestmark = pytest.mark.rivals

DIVERGED = 1e4  # a loss beyond this: the next steps would multiply rounding errors
COMPILED_EVERY = 10  # the others run on the reference backend, without compile time


@pytest.fixture
def in_float64(keras):
    """Compute in doubles, so that rounding explains next to nothing."""
    kept = keras.config.floatx()
    config.set_floatx("float64")
    # Keras' policy does not follow the float type once another test has asked for it.
    for choose in (keras.config.set_floatx, keras.config.set_dtype_policy):
        choose("float64")
    yield
    for choose in (keras.config.set_floatx, keras.config.set_dtype_policy):
        choose(kept)


# Numbers that float32 holds exactly: TensorFlow rounds them to it, also for doubles.
EXACT: dict[str, dict[str, Any]] = {
    "SGD": {},
    "Adam": {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2**-20},
    "AdamW": {"beta_1": 0.875, "beta_2": 0.96875, "weight_decay": 2**-7},
    "RMSprop": {"rho": 0.875, "epsilon": 2**-20},
    "Adagrad": {"initial_accumulator_value": 0.125, "epsilon": 2**-20},
    "Adadelta": {"rho": 0.875, "epsilon": 2**-20},
    "Adamax": {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2**-20},
    "Nadam": {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2**-20},
    "Lion": {"beta_1": 0.875, "beta_2": 0.96875},
    "Ftrl": {"initial_accumulator_value": 0.125},
    "Lamb": {"beta_1": 0.875, "beta_2": 0.96875, "epsilon": 2**-20},
    "Adafactor": {"epsilon_1": 2**-20, "epsilon_2": 2**-10},
    "Muon": {
        "adam_beta_1": 0.875,
        "adam_beta_2": 0.96875,
        "adam_weight_decay": 2**-7,
        "epsilon": 2**-20,
        "weight_decay": 2**-7,
    },
}
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "SGD": [{}, {"momentum": 0.75}, {"momentum": 0.75, "nesterov": True}],
    "Adam": [{}, {"amsgrad": True}],
    "AdamW": [{}, {"amsgrad": True}],
    "RMSprop": [{}, {"centered": True}, {"momentum": 0.5}],
    "Ftrl": [{}, {"l1_regularization_strength": 0.125, "beta": 0.5}],
    "Adafactor": [{}, {"relative_step": False}],
    "Muon": [{}, {"nesterov": False, "rms_rate": None}],
}
COMMON: list[dict[str, Any]] = [
    *[{}] * 4,
    {"clipnorm": 0.5},
    {"clipvalue": 0.25},
    {"global_clipnorm": 0.5},
    {"weight_decay": 0.125},
    {"use_ema": True, "ema_momentum": 0.5},
    {"gradient_accumulation_steps": 2},
]


def optimizer_of(module: Any, seed: int) -> tuple[Any, str]:
    """Draw an optimizer."""
    rng = Random(seed + 1)
    name = rng.choice([*NAMES, "SGD", "SGD"])
    options = EXACT[name] | {"learning_rate": rng.choice([0.5, 0.25, 0.0625])}
    options |= rng.choice(VARIANTS.get(name, [{}])) | rng.choice(COMMON)
    text = f"{name}({options})"
    # Keras' Muon cannot multiply doubles by the float32 that a schedule gives.
    if rng.random() < 0.2 and name != "Muon":
        schedule, arguments = rng.choice(ALL_SCHEDULES)
        make = getattr(module.optimizers.schedules, schedule)
        options["learning_rate"] = make(**arguments)
        text += f" with {schedule}({arguments})"
    return getattr(module.optimizers, name)(**options), text


# These move every weight equally far, also one whose gradient is rounding alone: the
# next step starts elsewhere.
SCALE_FREE = ("Lion", "Lamb")


def as_dense(gradient: Any) -> Any:
    """Return the gradient of an embedding as the array that it stands for."""
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


class Run:
    """A model of one module, trained for some steps; and everything it showed."""

    def __init__(self, module: Any, seed: int) -> None:
        self.is_ours = module is ganglion
        self.model, self.heads, self.maker = random_models.draw(module, seed)
        rng = np.random.default_rng(seed)
        self.rows = int(rng.choice([1, 2, 3, 4, 6]))
        self.x = random_models.data(self.model, seed, self.rows)
        shapes = [(self.rows, *output.shape[1:]) for output in self.model.outputs]
        pairs = zip(self.heads, shapes, strict=True)
        self.y = [head.draw_labels(rng, shape) for head, shape in pairs]
        self.weight = self._sample_weights(rng)
        self.class_weight = self._class_weights(rng)
        shapes = [tuple(array.shape) for array in self.model.get_weights()]
        names = [weight.name for weight in self.model.weights]
        self.start = random_models.weights(shapes, names, seed)
        self.model.set_weights(self.start)
        self.steps = int(rng.choice([1, 1, 2, 3]))
        optimizer, self.optimizer_text = optimizer_of(module, seed)
        self.optimizer_name = type(optimizer).__name__
        # An l1 makes a step of rounding from 0 matter: it has a kink there.
        text = self.maker.text
        has_l1 = any("=l1" in line for line in text)
        if self.optimizer_name in SCALE_FREE or has_l1:
            self.steps = 1
        # TensorFlow resizes in float32, whatever it is given.
        self.resizes = any("Resiz" in line or "biline" in line for line in text)
        self.gradients = self._watched(optimizer)
        many = len(self.heads) > 1
        losses = [head.make_loss(module) for head in self.heads]
        metrics = [[head.metric] if head.metric else [] for head in self.heads]
        self.model.compile(
            optimizer,
            losses if many else losses[0],
            loss_weights=[0.5, 2.0] if many and seed % 2 else None,
            metrics=metrics if many else metrics[0],
            **(
                {}
                if module is ganglion
                else {"run_eagerly": True, "jit_compile": False}
            ),
        )

    def _sample_weights(self, rng: np.random.Generator) -> Any:
        if rng.random() < 0.7:
            return None
        return [rng.choice([0.0, 0.5, 1.0, 2.0], y.shape[:-1]) for y in self.y]

    def _class_weights(self, rng: np.random.Generator) -> dict[int, float] | None:
        counted = [head.labels for head in self.heads] in (["class"], ["one_hot"])
        counted &= len(self.model.outputs[0].shape) == 2
        if not counted or self.weight is not None or rng.random() < 0.7:
            return None
        drawn = rng.choice([0.0, 0.5, 1.0, 2.0], self.heads[0].units)
        return dict(enumerate(drawn.tolist()))

    def _watched(self, optimizer: Any) -> list[Any]:
        """Return a list that will hold the gradients of each step, if Keras'."""
        seen: list[Any] = []
        if type(optimizer).__module__.startswith("keras"):
            apply = optimizer.apply

            def watch(gradients: Any, variables: Any = None) -> Any:
                dense = [as_dense(gradient) for gradient in gradients]
                seen.append([np.asarray(gradient) for gradient in dense])
                return apply(dense, variables)

            optimizer.apply = watch
        return seen

    def go(self) -> dict[str, Any]:
        """Return outputs, losses, metrics and how the weights changed."""
        x, y = _single(self.x), _single(self.y)
        shown: dict[str, Any] = {}
        for number, output in enumerate(tree.flatten(self.model(x))):
            shown[f"output {number}"] = np.asarray(output)
        for step in range(self.steps):
            self.model.reset_metrics()
            logs = self.model.train_on_batch(
                x, y, _single(self.weight), self.class_weight, return_dict=True
            )
            for name, value in logs.items():
                shown[f"{name} of step {step}"] = np.asarray(value)
            if not logs["loss"] < DIVERGED:
                break
        ends = zip(
            self.model.weights, self.model.get_weights(), self.start, strict=True
        )
        for variable, end, start in ends:
            shown[_change(variable)] = end - start
        return shown

    def rounding(self) -> dict[str, np.ndarray]:
        """Return which weights have gradients of which rounding is too large a part.

        Other optimizers than SGD make steps of similar size from small gradients.
        """
        if self.optimizer_name == "SGD":
            return {}
        names = [_change(weight) for weight in self.model.trainable_weights]
        masks = [
            np.zeros(weight.shape, bool) for weight in self.model.trainable_weights
        ]
        for gradients in self.gradients:
            largest = max(
                float(np.abs(gradient).max(initial=0.0)) for gradient in gradients
            )
            for mask, gradient in zip(masks, gradients, strict=True):
                small = np.abs(gradient) <= 1e-6 * largest
                mask |= small & ((gradient != 0) | (self.optimizer_name in SCALE_FREE))
        return dict(zip(names, masks, strict=True))


def _change(variable: Any) -> str:
    return f"change of {variable.path}"


def _single(arrays: list[Any] | None) -> Any:
    return arrays[0] if arrays is not None and len(arrays) == 1 else arrays


def describe(run: Run, seed: int, backend: str) -> str:
    lines = [
        f"seed {seed} on {backend}, {run.rows} rows, {run.steps} steps of "
        f"{run.optimizer_text}, weights {run.weight} and {run.class_weight}",
        *run.maker.text,
        f"again: pytest tests/models/test_random_models.py --random-model {seed}",
    ]
    return "\n  ".join(lines)


def compare(ours: Run, theirs: Run) -> list[str]:
    """Run both; name what differs by more than rounding."""
    texts = []
    mine_shown, their_shown = ours.go(), theirs.go()
    skipped = theirs.rounding()
    if list(mine_shown) != list(their_shown):
        return [f"shown are {list(mine_shown)}, and by Keras {list(their_shown)}"]
    for name, mine in mine_shown.items():
        other = their_shown[name]
        if mine.shape != other.shape:
            texts.append(f"{name}: shape {mine.shape}, Keras {other.shape}")
            continue
        finite = other[np.isfinite(other)]
        scale = float(np.abs(finite).max(initial=0.0))
        # TensorFlow keeps constants (of gelu, leaky_relu) in float32, to 1e-7 of them;
        # further steps multiply such differences.
        first = ours.steps == 1 or name.startswith("output") or name.endswith("step 0")
        near = 1e-6 if first and "after" not in name and not ours.resizes else 1e-4
        close = np.isclose(mine, other, near, near * scale + 1e-8, equal_nan=True)
        close |= skipped.get(name, False)
        if not close.all():
            at = tuple(np.argwhere(~close)[0])
            texts.append(
                f"{name}{list(map(int, at))}: {mine[at]!r}, Keras {other[at]!r} "
                f"({(~close).sum()} of {close.size})"
            )
    return texts


def test_a_random_model_equals_keras(keras, in_float64, random_model: int) -> None:
    seed = random_model
    backend = "cpu" if seed % COMPILED_EVERY == 0 else "numpy"
    config.set_backend(backend)
    ours = Run(ganglion, seed)
    print(describe(ours, seed, backend))
    theirs = Run(keras, seed)
    try:
        wrong = compare(ours, theirs)
    except Exception as error:
        if "not supported on CPU" not in str(error):
            raise
        pytest.skip("TensorFlow has no gradients of grouped convolutions on a CPU")
    assert not wrong, "\n".join(wrong)
