"""Model: a layer that can be trained, functional or subclassed."""

from __future__ import annotations

import copy
import re
import warnings
from typing import Any

from ganglion import config, keras2, symbolic
from ganglion.layers import Layer
from ganglion.layers.construction import by_calling, shapes_of, unwrapped
from ganglion.models.calibration import calibrate
from ganglion.models.functional import Network, shared
from ganglion.models.state_tree import assign_nested_state, nested_state
from ganglion.models.summary import summary as print_summary
from ganglion.quantizers.configs import resolved
from ganglion.serialization import export
from ganglion.symbolic import KerasTensor
from ganglion.training.old_methods import OldMethods
from ganglion.variables import current_scope, read


class LayerList(list[Layer]):
    """The layers of a model as a list; to `pop` one is what scripts for Keras 2 do.

    It takes the layer off the list of the model, and leaves the calls as they are. For
    `tf.keras` and Keras 3 the list is a copy, and the model keeps the layer.
    """

    def __init__(self, shown: list[Layer], layers: list[Layer]) -> None:
        super().__init__(shown)
        self._layers = layers

    def pop(self, index: Any = -1) -> Layer:
        new = "`Model(model.inputs, model.layers[-2].output)`"
        keras2.note("`model.layers.pop()`", new, changes_defaults=False)
        layer = super().pop(index)
        is_copy = config.stands_for_keras() and not keras2.is_own
        # An InputLayer may stand in for another.
        if layer in self._layers and not is_copy:
            self._layers.remove(layer)
        return layer


class Model(OldMethods):
    """A layer that can be trained: from Keras tensors, or by subclassing.

    >>> from ganglion import Input, Model
    >>> from ganglion.layers import Dense
    >>> x = Input((4,))
    >>> model = Model(x, Dense(2)(x))
    >>> model.count_params()
    10
    """

    _untracked = OldMethods._untracked | {
        "_network", "_symbolic_losses", "_symbolic_metrics",
    }  # fmt: skip
    _is_list_of_layers = False
    takes_python_numbers = True  # lists of numbers or texts, for its inputs to read
    _warned_of_mask = True  # a mask goes to the layers inside, which warn of it

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is Model and (args or {"inputs", "outputs", "output"} & kwargs.keys()):
            return super().__new__(Functional, *args, **kwargs)
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        inputs, outputs, kwargs = _ends(args, kwargs)
        Layer.__init__(self, **kwargs)
        self._start_training_state()
        self._network: Network | None = None
        self._symbolic_losses: list[KerasTensor] = []
        self._symbolic_metrics: dict[str, KerasTensor] = {}
        if inputs is not None:
            self._network = Network(inputs, outputs)
            self.built = True

    # ---- structure ---------------------------------------------------------------

    @property
    def layers(self) -> list[Layer]:
        """The layers directly below this model."""
        if self._network is not None:
            network = self._network
            shown = [*network.stand_ins.values(), *network.layers]
            return LayerList(shown, network.layers)
        return super()._layers_below()

    @layers.setter
    def layers(self, layers: Any) -> None:
        raise AttributeError(
            "`Model.layers` attribute is reserved and should not be used: keep the "
            "layers under another name."
        )

    @property
    def operations(self) -> list[Any]:
        """The layers and ops of a functional model, inputs first."""
        network = self._functional("operations")
        return [*network.stand_ins.values(), *network.operations]

    def _layers_below(self) -> list[Layer]:
        # Those of the graph, and others that attributes hold.
        every = [*self.layers, *self._tracker.layers]
        return list({id(layer): layer for layer in every}.values())

    def reset_states(self) -> None:
        """Keras 2's way to set the states of all stateful layers to zero."""
        keras2.note(
            "`model.reset_states()`",
            "`reset_state()` of each stateful layer",
            changes_defaults=False,
        )
        for layer in self._flatten_layers(include_self=False):
            if getattr(layer, "stateful", False):
                layer.reset_state()

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """Return a layer by its name or its number."""
        if (name is None) == (index is None):
            raise ValueError("Give either the name or the index of a layer.")
        if index is not None:
            if not -len(self.layers) <= index < len(self.layers):
                raise ValueError(f"No layer {index}: there are {len(self.layers)}.")
            return self.layers[index]
        for layer in self.layers:
            if layer.name == name:
                return layer
        known = ", ".join(layer.name for layer in self.layers)
        raise ValueError(f"No such layer: {name}. Existing layers: {known}.")

    @property
    def input(self) -> Any:
        return self._functional("input").inputs

    @property
    def output(self) -> Any:
        return self._functional("output").outputs

    @property
    def inputs(self) -> list[KerasTensor]:
        """The Keras tensors the model starts from, as a list."""
        return self._functional("inputs").flat_inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """The Keras tensors the model ends in, as a list."""
        return self._functional("outputs").flat_outputs

    @outputs.setter
    def outputs(self, tensors: Any) -> None:
        new = "`Model(model.inputs, outputs)`"
        keras2.note("`model.outputs = [...]`", new, changes_defaults=False)
        self._network = Network(self.inputs, _alone(tensors))
        self._step_cache.clear()

    @property
    def input_shape(self) -> Any:
        """The shape(s) of the input."""
        return shapes_of(_alone(self.inputs))

    @property
    def output_shape(self) -> Any:
        """The shape(s) of the output."""
        return shapes_of(_alone(self.outputs))

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return self._functional("input names").input_names

    @property
    def output_names(self) -> list[str] | None:
        """The names of the outputs, None where they are not known."""
        return self._network.output_names if self._network else None

    def _functional(self, name: str) -> Network:
        if self._network is None:
            raise AttributeError(
                f'The model "{self.name}" has no {name} yet: build it by an Input, '
                "by calling it on Keras tensors, or use the functional API."
            )
        return self._network

    # ---- calling -----------------------------------------------------------------

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if self._network is None:
            raise NotImplementedError(
                f"{type(self).__name__} does not define `call`, and was not given "
                "`inputs` and `outputs`."
            )
        measured = list(self._symbolic_metrics.values())
        extra = [*self._symbolic_losses, *measured]
        outputs, values = self._network.run(inputs, extra, mask)
        scope = current_scope()
        if scope is not None:
            for loss in values[: len(self._symbolic_losses)]:
                scope.add_loss(self, read(loss))
            rest = values[len(self._symbolic_losses) :]
            for name, value in zip(self._symbolic_metrics, rest, strict=True):
                super().add_metric(value, name)
        return _alone(outputs)

    def _replays(self) -> bool:
        """Return whether a call does nothing else than to repeat the graph's calls."""
        return self._network is not None and type(self).call is Model.call

    def _cast_float(self, leaf: Any) -> Any:
        # The inputs of a graph have types; its layers cast as they compute.
        return leaf if self._replays() else super()._cast_float(leaf)

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        if self._replays() and len(args) == 1 and not symbolic.any_symbolic(kwargs):
            assert self._network is not None
            outputs = self._network.infer(args[0])
            if outputs is not None:
                return outputs
        return super()._infer(args, kwargs)

    def _call_traced(self, args: Any, kwargs: dict[str, Any]) -> Any:
        if not self._replays():
            return super()._call_traced(args, kwargs)
        assert self._network is not None
        self._network.refuse_too_many_calls(self.name)
        return shared(self._network, super()._call_traced, args, kwargs)

    def add_loss(self, loss: Any, inputs: Any = None) -> None:
        losses = loss if isinstance(loss, (list, tuple)) else [loss]
        if not symbolic.any_symbolic(losses):
            super().add_loss(loss, inputs)
            return
        self._functional("loss")
        self._symbolic_losses.extend(losses)
        self._step_cache.clear()

    def get_quantization_layer_structure(self, mode: Any = None) -> Any:
        """Return the layers before the blocks of the model, and the blocks.

        GPTQ and AWQ quantize block by block. A subclass with such blocks returns
        ``{"pre_block_layers": [...], "sequential_blocks": [...]}``; others None.
        """
        return None

    def quantize(  # type: ignore[override]
        self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs: Any
    ) -> None:
        """Quantize all layers that can be, or those whose names fit `filters`.

        Filters are a pattern, a list of them, or a function of a layer. Layers that
        cannot be quantized are left unchanged, with a warning.
        """
        type_check = kwargs.pop("type_check", True)
        if kwargs:
            raise ValueError(
                f"Unrecognized keyword arguments passed to {type(self).__name__}: "
                f"{kwargs}"
            )
        config = resolved(mode, config)
        for layer in self._flatten_layers():
            is_leaf = len(layer._flatten_layers()) == 1
            if is_leaf and layer is not self and _fits(layer, filters):
                try:
                    layer.quantize(config.mode, type_check=type_check, config=config)
                except NotImplementedError as error:
                    warnings.warn(str(error), stacklevel=2)
        if config.mode in ("gptq", "awq"):
            calibrate(self, config, lambda layer: _fits(layer, filters))
        self._step_cache.clear()
        self._chosen_weights = None

    def add_metric(
        self, value: Any, name: str | None = None, aggregation: str | None = None
    ) -> None:
        if not symbolic.is_symbolic(value):
            super().add_metric(value, name, aggregation)
            return
        if name is None:
            raise ValueError("`add_metric` needs a `name` for what is reported.")
        self._functional("metric")
        self._symbolic_metrics[name] = value
        self._step_cache.clear()

    @by_calling
    def build(self, input_shape: Any) -> None:
        is_own = type(self).build is not Model.build  # and this is `super().build(...)`
        if not is_own and self._network is None and type(self).call is not Model.call:
            self.compute_output_spec(_placeholders(input_shape))
        self.built = True

    def _build_once(self, shapes: Any) -> None:
        # A subclass without its own `build` builds its layers while it is called.
        if type(self).build is not Model.build:
            super()._build_once(shapes)
        elif self._network is None:
            self._build_shape = unwrapped(shapes)
        self.built = True

    def build_from_config(self, config: dict[str, Any]) -> None:
        shape = config.get("input_shape") if config else None
        if shape is not None and not self.built:
            self.build(shape)

    def count_params(self) -> int:
        if not self.built:
            raise ValueError(
                f'The model "{self.name}" has no weights yet: call it on data, or '
                "start it with an Input."
            )
        return sum(weight.size for weight in self.weights)

    # ---- showing and saving ------------------------------------------------------

    def summary(
        self,
        line_length: int | None = None,
        positions: Any = None,
        print_fn: Any = None,
        expand_nested: bool = False,
        show_trainable: bool = False,
        layer_range: Any = None,
    ) -> None:
        """Print a table of the layers, their output shapes and parameter counts."""
        options = {k: v for k, v in locals().items() if k != "self"}
        print_summary(self, **options)

    def save(
        self,
        filepath: Any,
        overwrite: bool = True,
        zipped: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """Save the entire model, including its optimizer, as a `.keras` file."""
        from ganglion import saving

        saving.save_model(self, filepath, overwrite=overwrite, zipped=zipped, **kwargs)

    def export(
        self,
        filepath: Any,
        format: str | None = None,  # noqa: A002 (Keras' word)
        verbose: bool | None = None,
        input_signature: Any = None,
        **kwargs: Any,
    ) -> None:
        """Write the model in a format that runs without Ganglion.

        Args:
            filepath: Where to.
            format: One of `ganglion.export.formats`; by default that of the suffix.
            verbose: Whether to print the paths of the files; by default yes.
            input_signature: The shape and type of each input, where the model leaves
                sizes open.
            kwargs: Options of the format, see `docs/export.md`.
        """
        from ganglion.export import export_model

        exported = export_model(
            self, filepath, format, input_signature=input_signature, **kwargs
        )
        if verbose is not False:
            print(exported)

    def save_weights(
        self, filepath: Any, overwrite: bool = True, max_shard_size: Any = None
    ) -> None:
        """Save the weights as a `.weights.h5` file."""
        from ganglion import saving

        saving.save_weights(self, filepath, overwrite, max_shard_size)

    def load_weights(
        self, filepath: Any, skip_mismatch: bool = False, **kwargs: Any
    ) -> None:
        """Load weights saved by this or an equal model."""
        from ganglion import saving

        saving.load_weights(self, filepath, skip_mismatch=skip_mismatch, **kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Support pickling and copying, by way of the model's file format.

        A subclass that has no weights yet, or cannot be made from its configuration, is
        taken as it is, attribute by attribute.
        """
        from ganglion.saving import pickling

        reduced = pickling.reduced(self)
        return super().__reduce_ex__(protocol) if reduced is None else reduced

    def __copy__(self) -> Any:
        # As in Keras, an entire model: two models must not train the same weights.
        return copy.deepcopy(self)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled steps belong to this process; a copy compiles its own.
        state = super().__getstate__()
        return {name: state[name] for name in state.keys() - {"_step_cache"}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._start_training_state()
        vars(self).update(state)

    def get_state_tree(self, value_format: str = "backend_tensor") -> dict[str, Any]:
        """Return all variables as nested dictionaries, by kind and path.

        Values are tensors, or arrays with ``value_format="numpy_array"``.
        """
        return nested_state(self, value_format)

    def set_state_tree(self, state_tree: dict[str, Any]) -> None:
        """Assign what `get_state_tree` returned, or a part of it."""
        assign_nested_state(self, state_tree)

    def to_json(self, **kwargs: Any) -> str:
        """Return the architecture as JSON text."""
        from ganglion import saving

        return saving.model_to_json(self, **kwargs)

    def get_config(self) -> dict[str, Any]:
        from ganglion.models import config as model_config

        if self._network is None:
            return Layer.get_config(self)
        return model_config.functional_config(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        from ganglion.models import config as model_config

        return model_config.model_from_config(cls, config, custom_objects)

    def get_compile_config(self) -> dict[str, Any] | None:
        """Return the arguments of `compile` as plain data, None before `compile`."""
        from ganglion.models import config as model_config

        return model_config.compile_config(self) if self.compiled else None

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compile as an equal model was compiled before."""
        from ganglion.models import config as model_config

        model_config.compile_from_config(self, config)


class _MadeOfTensors(type):
    """The metaclass that makes models of user classes `Functional`, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance) or cls is not Functional:
            return super().__instancecheck__(instance)
        is_one = isinstance(instance, Model) and not instance._is_list_of_layers
        return is_one and vars(instance).get("_network") is not None


@export("keras.src.models.functional", "Model")
@export("keras.src.engine.functional", "Model")  # where Keras 2 had it
class Functional(Model, metaclass=_MadeOfTensors):
    """A model made of Keras tensors; one of a subclass of `Model` is an instance, too.

    >>> import ganglion as keras
    >>> x = keras.Input((4,))
    >>> type(keras.Model(x, keras.layers.Dense(2)(x))).__name__
    'Functional'
    """


def _alone(structure: Any) -> Any:
    """Return the only element of a list or tuple, as Keras does."""
    is_list = isinstance(structure, (list, tuple)) and len(structure) == 1
    return structure[0] if is_list else structure


def _ends(args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    rest = dict(kwargs)
    for old, new in (("input", "inputs"), ("output", "outputs")):
        if old in rest and new not in rest:
            keras2.note(f"`Model({old}=)`", f"`Model({new}=)`")
            rest[new] = rest.pop(old)
    positional = list(args)
    inputs = positional.pop(0) if positional else rest.pop("inputs", None)
    outputs = positional.pop(0) if positional else rest.pop("outputs", None)
    if positional:
        rest["name"] = positional.pop(0)
    if (inputs is None) != (outputs is None):
        raise ValueError("A functional Model needs both `inputs` and `outputs`.")
    return inputs, outputs, rest


def _placeholders(shapes: Any) -> Any:
    if isinstance(shapes, dict):
        return {key: _placeholders(shape) for key, shape in shapes.items()}
    if shapes and isinstance(shapes[0], (list, tuple)):
        return [_placeholders(shape) for shape in shapes]
    return KerasTensor(tuple(shapes))


def _fits(layer: Layer, filters: Any) -> bool:
    """Return whether a layer is to be quantized."""
    if filters is None:
        return True
    if callable(filters):
        return bool(filters(layer))
    patterns = [filters] if isinstance(filters, str) else filters
    if not isinstance(patterns, (list, tuple)):
        raise ValueError(
            "The `filters` argument must be a regex string, a list of regex strings, "
            f"or a callable. Received: {type(filters)}"
        )
    return any(re.search(pattern, layer.name) for pattern in patterns)
