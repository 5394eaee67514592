"""Every public class has Keras' signature; the exceptions are listed with reasons."""

import inspect

import pytest
from signature_exceptions import EXCEPTIONS

import ganglion

MODULES = (
    "layers",
    "optimizers",
    "optimizers.schedules",
    "losses",
    "metrics",
    "callbacks",
    "initializers",
    "regularizers",
    "constraints",
)
METHODS = (
    "compile",
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
    "summary",
    "save",
    "save_weights",
    "load_weights",
    "get_layer",
    "get_weights",
    "set_weights",
    "count_params",
    "to_json",
)
FUNCTIONS = (
    "models.clone_model",
    "models.load_model",
    "models.save_model",
    "models.model_from_json",
    "utils.to_categorical",
    "utils.set_random_seed",
    "utils.pad_sequences",
    "utils.normalize",
    "utils.get_file",
)


def find(root, path):
    for name in path.split("."):
        root = getattr(root, name, None)
    return root


def public_classes(module):
    """Return the classes that a module makes public, not those it only imports."""
    own = [name for name in dir(module) if _is_public(module, getattr(module, name))]
    return sorted(getattr(module, "__all__", own))


def _is_public(module, thing):
    is_ours = inspect.isclass(thing) and thing.__module__.startswith(module.__name__)
    return is_ours and not thing.__name__.startswith("_")


def cases():
    found = ["Variable", "KerasTensor", "InputSpec", "random.SeedGenerator"]
    found += [f"Model.{name}" for name in METHODS]
    found += [
        "Layer",
        "Sequential",
        "Sequential.add",
        "Sequential.pop",
        "utils.Progbar",
    ]
    found += ["Layer.add_weight", "utils.PyDataset", *FUNCTIONS]
    for module in MODULES:
        ours = find(ganglion, module)
        found += [
            f"{module}.{name}"
            for name in public_classes(ours)
            if inspect.isclass(getattr(ours, name))
        ]
    return found


def parameters(thing):
    """Return names, kinds and defaults; defaults that are objects by their type."""
    rows = []
    for one in inspect.signature(thing).parameters.values():
        default = one.default
        plain = default is inspect.Parameter.empty or isinstance(
            default, (str, int, float, bool, tuple, list, dict, type(None))
        )
        rows.append((one.name, one.kind.name, default if plain else type(default)))
    return rows


@pytest.mark.rivals
@pytest.mark.parametrize("path", cases())
def test_signature_equals_keras(keras, path):
    ours, theirs = find(ganglion, path), find(keras, path)
    if theirs is None:
        assert path in EXCEPTIONS, f"Keras has no {path}: say why we have it"
        return
    assert ours is not None, f"{path} is missing"
    if parameters(ours) == parameters(theirs):
        assert path not in EXCEPTIONS, f"{path} is no exception any more: remove it"
    else:
        assert path in EXCEPTIONS, (
            f"{path}{inspect.signature(ours)} differs from Keras' "
            f"{inspect.signature(theirs)}"
        )


@pytest.mark.rivals
def test_every_exception_is_about_something(keras):
    assert set(EXCEPTIONS) <= set(cases())
