"""Distillation beside Keras: every loss, weights, logs, configurations, refusals."""

from typing import Any

import numpy as np
import pytest
from keras_programs import errors_of

import ganglion

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 4)).astype("float32")
Y = RNG.integers(0, 3, 16)


def network(keras: Any, name: str, seed: int, units: int = 5) -> Any:
    layers = [
        keras.Input((4,)),
        keras.layers.Dense(units, activation="relu", name="hidden"),
        keras.layers.Dense(3, name="logits"),
    ]
    model = keras.Sequential(layers, name=name)
    rng = np.random.default_rng(seed)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


def logits(keras: Any) -> Any:
    divergence = keras.losses.KLDivergence()
    return keras.distillation.LogitsDistillation(4.0, divergence)


def features(keras: Any) -> Any:
    return keras.distillation.FeatureDistillation("mse", "hidden", "hidden")


CASES = {
    "logits": (logits, {}),
    "by name": (
        lambda keras: keras.distillation.LogitsDistillation(2.0, "mse"),
        {"student_loss_weight": 0.2},
    ),
    "two": (
        lambda keras: [features(keras), logits(keras)],
        {"distillation_loss_weights": [0.5, 2.0]},
    ),
    "teacher alone": (features, {"student_loss_weight": 0.0}),
    "labels alone": (features, {"student_loss_weight": 1.0}),
}


def run(keras: Any, case: str) -> list[Any]:
    losses, options = CASES[case]
    distiller = keras.distillation.Distiller(
        network(keras, "teacher", 1),
        network(keras, "student", 2),
        losses(keras),
        **options,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    distiller.compile(keras.optimizers.SGD(0.01), loss, metrics=["accuracy"])
    history = distiller.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    scores = distiller.evaluate(X, Y, verbose=0, return_dict=True)
    names = [
        sorted(history.history),
        sorted(scores),
        len(distiller.trainable_variables),
    ]
    numbers = [history.history[name] for name in names[0]]
    numbers += [[float(scores[name])] for name in names[1]]
    return [names, np.concatenate(numbers), distiller.predict(X, verbose=0)]


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore:The loss does not depend on")
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("case", CASES)
def test_as_keras(keras, case):
    ours, theirs = run(ganglion, case), run(keras, case)
    assert ours[0] == theirs[0]
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-4, atol=1e-5)


@pytest.mark.rivals
def test_configurations(keras):
    for case in CASES.values():
        losses = case[0](ganglion)
        for loss in losses if isinstance(losses, list) else [losses]:
            config = loss.get_config()
            again = type(loss).from_config(config)
            assert again.get_config() == config
            theirs = getattr(keras.distillation, type(loss).__name__)
            assert theirs.from_config(config).get_config().keys() == config.keys()
    distiller = ganglion.distillation.Distiller(
        network(ganglion, "teacher", 1),
        network(ganglion, "student", 2),
        logits(ganglion),
    )
    plain = ganglion.saving.serialize_keras_object(distiller)
    again = ganglion.saving.deserialize_keras_object(plain)
    assert again.distillation_losses[0].temperature == 4.0
    assert [layer.name for layer in again.student.layers] == ["hidden", "logits"]


def refusals(keras: Any) -> list[type]:
    kinds = keras.distillation
    teacher, student = network(keras, "teacher", 1), network(keras, "student", 2)
    other = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])

    class Rows(kinds.DistillationLoss):
        def compute_loss(self, teacher_outputs, student_outputs, **kwargs):
            return teacher_outputs

    def compiled(**options: Any) -> Any:
        distiller = kinds.Distiller(teacher, student, logits(keras))
        distiller.compile("sgd", **options)

    def trained(loss: Any) -> Any:
        distiller = kinds.Distiller(teacher, student, loss)
        distiller.compile("sgd", "mse", run_eagerly=True)
        distiller.fit(X, np.ones((16, 3)), verbose=0)

    calls = [
        lambda: kinds.LogitsDistillation(0.0),
        lambda: kinds.LogitsDistillation("3"),
        lambda: kinds.LogitsDistillation(loss=None),
        lambda: kinds.FeatureDistillation(loss=[None, None]),
        lambda: kinds.FeatureDistillation(loss="nonsense"),
        lambda: kinds.DistillationLoss().compute_loss(1, 2),
        lambda: kinds.Distiller("a", student, logits(keras)),
        lambda: kinds.Distiller(teacher, "b", logits(keras)),
        lambda: kinds.Distiller(other, student, logits(keras)),
        lambda: kinds.Distiller(teacher, student, None),
        lambda: kinds.Distiller(teacher, student, [logits(keras)], [1.0, 2.0]),
        lambda: kinds.Distiller(
            teacher, student, logits(keras), student_loss_weight=2.0
        ),
        lambda: kinds.Distiller(
            teacher, student, logits(keras), student_loss_weight="1"
        ),
        lambda: kinds.Distiller(
            teacher, student, kinds.FeatureDistillation("mse", "none", "hidden")
        ),
        lambda: compiled(loss=None),
        lambda: compiled(loss="mse", metrics="mae"),
        lambda: trained(Rows()),
    ]
    return errors_of(calls)


@pytest.mark.rivals
@pytest.mark.filterwarnings("ignore")
def test_refusals_as_keras(keras):
    ours, theirs = refusals(ganglion), refusals(keras)
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        assert issubclass(our, their), number
