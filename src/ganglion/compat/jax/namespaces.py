"""The modules `jax`, `jax.numpy`, ... : our names, looked up when they are used."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np

_OF_KEYS = """split fold_in normal uniform randint bernoulli categorical choice
exponential gamma permutation truncated_normal""".split()  # noqa: SIM905
# Of these, JAX's functions are the same as Keras'.
_OF_LAX = """abs add ceil cos erf exp expm1 floor log log1p rsqrt sign sin sqrt square
tan tanh""".split()  # noqa: SIM905
_OF_TREES = {
    "map": "tree_map", "leaves": "leaves", "reduce": "reduce", "flatten": "flatten",
    "unflatten": "unflatten", "structure": "TreeDef",
}  # fmt: skip
_OWN_OF_LAX = """concatenate convert_element_type cumsum dynamic_index_in_dim
dynamic_slice_in_dim""".split()  # noqa: SIM905
_OWN_OF_NUMPY = """argsort argwhere atleast_2d bincount clip column_stack interp polyval
sort std var""".split()  # noqa: SIM905
_OF_SCIPY = ("erf", "erfc", "erfinv", "logsumexp")
# JAX's names, and where in Ganglion they lie.
_NAMES = {
    "jit": "compat.jax.functions.jit",
    "vmap": "compat.jax.functions.vmap",
    "grad": "gradients.grad",
    "value_and_grad": "gradients.value_and_grad",
    "hessian": "compat.jax.jacobians.hessian",
    "jacfwd": "compat.jax.jacobians.jacrev",
    "jacrev": "compat.jax.jacobians.jacrev",
    "jacobian": "compat.jax.jacobians.jacrev",
    "eval_shape": "compat.jax.functions.eval_shape",
    "jvp": "ops.jvp",
    "vjp": "compat.jax.jacobians.vjp",
    "checkpoint": "compat.jax.functions.unchanged",
    "remat": "compat.jax.functions.unchanged",
    "device_put": "compat.jax.functions.unchanged",
    "device_get": "compat.jax.functions.unchanged",
    "block_until_ready": "compat.jax.functions.unchanged",
    "devices": "compat.jax.functions.devices",
    "local_devices": "compat.jax.functions.devices",
    "device_count": "compat.jax.functions.device_count",
    "local_device_count": "compat.jax.functions.device_count",
    "default_backend": "compat.jax.functions.default_backend",
    "Array": "tensors.Tensor",
    "config.update": "compat.jax.functions.hint",
    "tree_map": "compat.jax.trees.tree_map",
    **{
        f"{module}{name}": f"compat.jax.trees.{ours}"
        for module in ("tree.", "tree_util.tree_")
        for name, ours in _OF_TREES.items()
    },
    "ops.segment_sum": "compat.jax.functions.segment_sum",
    "lax.associative_scan": "ops.associative_scan",
    "lax.clamp": "compat.jax.functions.clamp",
    "lax.cond": "compat.jax.functions.cond",
    "lax.dynamic_slice": "ops.slice",
    "lax.dynamic_update_slice": "compat.jax.functions.dynamic_update_slice",
    **{f"lax.{name}": f"compat.jax.arrays.{name}" for name in _OWN_OF_LAX},
    **{f"numpy.{name}": f"compat.jax.arrays.{name}" for name in _OWN_OF_NUMPY},
    "lax.slice": "compat.jax.arrays.static_slice",
    "lax.dot": "ops.matmul",
    "lax.expand_dims": "ops.expand_dims",
    "lax.sort": "ops.sort",
    "nn.standardize": "compat.jax.arrays.standardize",
    "lax.erf_inv": "ops.erfinv",
    "lax.fori_loop": "compat.jax.functions.fori_loop",
    "lax.logistic": "ops.sigmoid",
    "lax.map": "ops.map",
    "lax.max": "ops.maximum",
    "lax.min": "ops.minimum",
    "lax.mul": "ops.multiply",
    "lax.pow": "ops.power",
    "lax.scan": "ops.scan",
    "lax.select": "ops.where",
    "lax.stop_gradient": "ops.stop_gradient",
    "lax.sub": "ops.subtract",
    "lax.switch": "compat.jax.functions.switch",
    "lax.top_k": "compat.jax.functions.top_k",
    "lax.while_loop": "compat.jax.functions.while_loop",
    "nn.identity": "compat.jax.functions.unchanged",
    "nn.leaky_relu": "compat.jax.functions.leaky_relu",
    "nn.soft_sign": "ops.softsign",
    "numpy.array": "compat.jax.functions.array",
    "numpy.array_equal": "compat.jax.functions.array_equal",
    "numpy.full": "compat.jax.functions.full",
    "numpy.asarray": "compat.jax.functions.array",
    "numpy.ndarray": "tensors.Tensor",
    "random.PRNGKey": "compat.jax.keys.prng_key",
    "random.key": "compat.jax.keys.prng_key",
    "scipy.special.expit": "ops.sigmoid",
    **{f"random.{name}": f"compat.jax.keys.{name}" for name in _OF_KEYS},
    **{f"lax.{name}": f"ops.{name}" for name in _OF_LAX},
    **{f"scipy.special.{name}": f"ops.{name}" for name in _OF_SCIPY},
}
_MODULES = """numpy nn random lax tree tree_util config ops scipy
scipy.special""".split()  # noqa: SIM905
_OF_OPS = ("numpy", "nn")  # whose names are those of `ops`, too
_OF_NUMPY = """float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64
bool_ pi e inf nan newaxis finfo iinfo""".split()  # noqa: SIM905
_REASONS = {
    "sharding": "one device trains here. Leave the mesh and its layouts out.",
    "numpy.fft": "complex numbers are pairs here. Use `keras.ops.fft`, `rfft` and "
    "`stft`.",
    "pmap": "one device trains here. Use `jax.jit`.",
    "experimental": "of JAX, only what Keras scripts use most is here.",
}


def find(name: str) -> Any:
    """Return `jax.name`; an `AttributeError` says why it is missing."""
    if name == "__version__":
        return "0.10.0"
    if name in _MODULES:
        return importlib.import_module(f"jax.{name}")
    if name in _NAMES:
        module, _, attribute = _NAMES[name].rpartition(".")
        return getattr(importlib.import_module(f"ganglion.{module}"), attribute)
    if name in _REASONS:
        raise AttributeError(f"jax.{name}: {_reason(name)}")
    module, _, attribute = name.rpartition(".")
    if module == "numpy" and attribute in _OF_NUMPY:
        return getattr(np, attribute)
    if module in _OF_OPS:
        ops = importlib.import_module("ganglion.ops")
        if hasattr(ops, attribute):
            return getattr(ops, attribute)
    raise AttributeError(f"jax.{name}: {_reason(name)}")


def _reason(name: str) -> str:
    return (
        _REASONS.get(name)
        or _REASONS.get(name.partition(".")[0])
        or (
            "of JAX, only what Keras scripts use most is here, on Ganglion's ops. Use "
            "`keras.ops` or NumPy instead."
        )
    )


class Namespace(ModuleType):
    """A module of JAX's, whose names are looked up when they are used."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "JAX's names on Ganglion's ops.")
        self.__path__: list[str] = []
        self._prefix = name.removeprefix("jax").lstrip(".")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        value = find(f"{self._prefix}.{name}" if self._prefix else name)
        setattr(self, name, value)
        return value


def load(name: str) -> Namespace:
    """Return the module `jax.name`, or `jax` itself; refuse an unknown one."""
    if name and name not in _MODULES:
        raise ModuleNotFoundError(f"jax.{name}: {_reason(name)}")
    importlib.import_module("ganglion.compat.jax.updates")  # for `x.at`
    return Namespace(f"jax.{name}" if name else "jax")
