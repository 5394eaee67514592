"""Every public class, method and function has Keras' signature.

The one place for it; the exceptions are listed, with reasons, next door.
"""

import inspect

import pytest
from signature_exceptions import CLASSES, FUNCTIONS, METHODS_THAT_DIFFER
from signatures import find, parameters

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
# Functions are compared where Keras has one of the same name.
FUNCTION_MODULES = (
    *MODULES,
    "activations",
    "config",
    "models",
    "ops",
    "random",
    "saving",
    "tree",
    "utils",
)
METHODS = {
    "Model": "compile fit evaluate predict train_on_batch test_on_batch "
    "predict_on_batch summary save save_weights load_weights get_layer get_weights "
    "set_weights count_params to_json",
    "Sequential": "add pop",
    "Layer": "add_weight",
    "metrics.Metric": "add_variable add_weight update_state reset_state",
    "optimizers.Optimizer": "apply apply_gradients build add_variable "
    "add_variable_from_reference add_optimizer_variables update_step assign assign_add "
    "assign_sub scale_loss set_weights exclude_from_weight_decay "
    "finalize_variable_values save_own_variables load_own_variables from_config",
}
ALONE = (
    "Variable",
    "KerasTensor",
    "InputSpec",
    "Layer",
    "Sequential",
    "random.SeedGenerator",
    "utils.CustomObjectScope",
    "utils.Progbar",
    "utils.PyDataset",
    "utils.Sequence",
)
# Where Keras keeps what it does not show, or shows behind *args, **kwargs.
HIDDEN = {
    "losses.LossFunctionWrapper": "src.losses.losses.LossFunctionWrapper",
    "callbacks.MonitorCallback": "src.callbacks.monitor_callback.MonitorCallback",
    "optimizers.Optimizer": "src.optimizers.base_optimizer.BaseOptimizer",
}


def public_classes(module):
    """Return the classes that a module makes public, not those it only imports."""
    own = [name for name in dir(module) if _is_public(module, getattr(module, name))]
    return sorted(getattr(module, "__all__", own))


def _is_public(module, thing):
    is_ours = inspect.isclass(thing) and thing.__module__.startswith(module.__name__)
    return is_ours and not thing.__name__.startswith("_")


def class_cases():
    actual = list(ALONE)
    for module in MODULES:
        ours = find(ganglion, module)
        actual += [
            f"{module}.{name}"
            for name in public_classes(ours)
            if inspect.isclass(getattr(ours, name))
        ]
    return actual


def method_cases():
    actual = [
        f"{cls}.{item}" for cls, names in METHODS.items() for item in names.split()
    ]
    for name in public_classes(ganglion.callbacks):
        cls = getattr(ganglion.callbacks, name)
        hooks = ["set_params", "set_model"] if inspect.isclass(cls) else []
        if name != "CallbackList":  # it hands on the number, under any name
            hooks += [hook for hook in dir(cls) if hook.startswith("on_")]
        actual += [f"callbacks.{name}.{hook}" for hook in hooks]
    return actual


def function_cases():
    actual = []
    for module in FUNCTION_MODULES:
        ours = find(ganglion, module)
        for name in getattr(ours, "__all__", dir(ours)):
            if inspect.isfunction(getattr(ours, name)) and not name.startswith("_"):
                actual.append(f"{module}.{name}")
    return sorted(set(actual))


def check(keras, path, exceptions):
    ours, theirs = find(ganglion, path), find(keras, HIDDEN.get(path, path))
    assert ours is not None, f"{path} is missing"
    if parameters(ours) == parameters(theirs):
        assert path not in exceptions, f"{path} is no exception any more: remove it"
    else:
        assert path in exceptions, (
            f"{path}{inspect.signature(ours)} differs from Keras' "
            f"{inspect.signature(theirs)}"
        )


@pytest.mark.rivals
@pytest.mark.parametrize("path", class_cases())
def test_classes_equal_keras(keras, path):
    if find(keras, HIDDEN.get(path, path)) is None:
        assert path in CLASSES, f"Keras has no {path}: say why we have it"
    else:
        check(keras, path, CLASSES)


@pytest.mark.rivals
@pytest.mark.parametrize("path", method_cases())
def test_methods_equal_keras(keras, path):
    cls, _, method = path.rpartition(".")
    theirs = find(keras, HIDDEN.get(cls, cls))
    if theirs is None:
        assert cls in CLASSES
    elif not path.startswith("callbacks.") or method in vars(theirs):
        check(keras, path, METHODS_THAT_DIFFER)


@pytest.mark.rivals
@pytest.mark.parametrize("path", function_cases())
def test_functions_equal_keras(keras, path):
    if find(keras, path) is not None:
        check(keras, path, FUNCTIONS)


@pytest.mark.rivals
def test_most_functions_are_known_to_keras(keras):
    """The comparison above passes over what Keras has not; it must not be much."""
    shared = [path for path in function_cases() if find(keras, path) is not None]
    assert len(shared) > 350
    assert all(
        any(path.startswith(f"{item}.") for path in shared)
        for item in FUNCTION_MODULES
        if item != "callbacks"
    )


@pytest.mark.rivals
def test_every_exception_is_about_something(keras):
    assert set(CLASSES) <= set(class_cases())
    assert set(METHODS_THAT_DIFFER) <= set(method_cases())
    assert set(FUNCTIONS) <= set(function_cases())
