"""FeatureSpace: the columns of a table, each with a layer, as a vector."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import layers, symbolic, tree
from ganglion.layers import Layer, tensorflow_graph
from ganglion.layers.arguments import choice
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)
from ganglion.symbolic import TEXT, KerasTensor
from ganglion.utils.features import (
    Cross,
    Feature,
    TFDConcat,
    TFDIdentity,
    as_column,
    columns_of,
    in_batches,
)
from ganglion.variables import unique_name

Columns = dict[str, Any]


@export("keras.utils")
class FeatureSpace(Layer):
    """Prepares the columns of a table and joins them.

    A feature is named by its kind ("float", "float_normalized", "float_rescaled",
    "float_discretized", "integer_categorical", "string_categorical", "integer_hashed",
    "string_hashed"), or made by the method of that name.

    >>> space = FeatureSpace({"age": "float_normalized", "pet": "string_categorical"})
    >>> space.adapt({"age": [1.0, 3.0], "pet": ["cat", "dog"]})
    >>> space({"age": [3.0], "pet": ["cat"]})
    array([[1., 0., 0., 1.]], dtype=float32)
    """

    def __init__(
        self,
        features: dict[str, Any],
        output_mode: str = "concat",
        crosses: Any = None,
        crossing_dim: int = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        if not features:
            raise ValueError(
                "The `features` of a FeatureSpace cannot be None or empty: give a "
                "dictionary by name."
            )
        self.output_mode = choice(output_mode, "`output_mode`", ("concat", "dict"))
        self.crossing_dim, self.hashing_dim = crossing_dim, hashing_dim
        self.num_discretization_bins = num_discretization_bins
        self.features: dict[str, Feature] = {
            key: self._feature(key, feature) for key, feature in features.items()
        }
        self.crosses = [self._cross(cross) for cross in crosses or []]
        self.inputs = {
            key: layers.Input((1,), dtype=feature.dtype, name=key)
            for key, feature in self.features.items()
        }
        self.preprocessors = {
            key: feature.preprocessor for key, feature in self.features.items()
        }
        self.crossers = {
            cross.name: layers.HashedCrossing(cross.crossing_dim, name=cross.name)
            for cross in self.crosses
        }
        self.one_hot_encoders: dict[str, Any] = {}
        self.concat: Any = None
        self.encoded_features: Any = None
        self._is_adapted = False

    def _feature(self, name: str, feature: Any) -> Feature:
        feature = deserialize_keras_object(feature)
        if isinstance(feature, Feature):
            return feature
        makers = self._makers()
        if not isinstance(feature, str) or feature not in makers:
            raise ValueError(
                f"Feature {name!r} is {feature!r}: give one of {', '.join(makers)}, or "
                "what the method of FeatureSpace of that name returns."
            )
        return makers[feature](name)

    def _makers(self) -> dict[str, Callable[[str], Feature]]:
        bins = self.num_discretization_bins
        return {
            "float": lambda name: self.float(name=name),
            "float_normalized": lambda name: self.float_normalized(name=name),
            "float_rescaled": lambda name: self.float_rescaled(name=name),
            "float_discretized": lambda name: self.float_discretized(bins, name=name),
            "integer_categorical": lambda name: self.integer_categorical(name=name),
            "string_categorical": lambda name: self.string_categorical(name=name),
            "integer_hashed": lambda name: self.integer_hashed(
                self.hashing_dim, name=name
            ),
            "string_hashed": lambda name: self.string_hashed(
                self.hashing_dim, name=name
            ),
        }

    def _cross(self, cross: Any) -> Cross:
        cross = deserialize_keras_object(cross)
        if not isinstance(cross, Cross):
            if not self.crossing_dim:
                raise ValueError("`crosses` need a `crossing_dim`.")
            cross = Cross(cross, self.crossing_dim)
        unknown = [name for name in cross.feature_names if name not in self.features]
        if unknown:
            raise ValueError(
                f"All names in `crosses` should be present in `features`, which has "
                f"{', '.join(map(repr, self.features))}. Received: "
                f"{', '.join(map(repr, unknown))}"
            )
        return cross

    # ---- features ----------------------------------------------------------------

    @classmethod
    def cross(
        cls, feature_names: Any, crossing_dim: int, output_mode: str = "one_hot"
    ) -> Cross:
        """Return features that are joined by a hash into `crossing_dim` buckets."""
        return Cross(feature_names, crossing_dim, output_mode)

    @classmethod
    def feature(cls, dtype: str, preprocessor: Any, output_mode: str) -> Feature:
        """Return a feature with a layer of the user's."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: str | None = None) -> Feature:
        """Return a feature of numbers as they are."""
        layer = TFDIdentity(dtype="float32", name=_layer_name(name, "float"))
        return Feature("float32", layer, "float")

    @classmethod
    def float_rescaled(
        cls,
        scale: builtins.float = 1.0,
        offset: builtins.float = 0.0,
        name: str | None = None,
    ) -> Feature:
        """Return a feature of ``x * scale + offset``."""
        name = _layer_name(name, "float_rescaled")
        layer = layers.Rescaling(scale=scale, offset=offset, name=name)
        return Feature("float32", layer, "float")

    @classmethod
    def float_normalized(cls, name: str | None = None) -> Feature:
        """Return a feature with mean 0 and variance 1."""
        name = _layer_name(name, "float_normalized")
        return Feature("float32", layers.Normalization(axis=-1, name=name), "float")

    @classmethod
    def float_discretized(
        cls,
        num_bins: int,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of bins."""
        layer = layers.Discretization(
            num_bins=num_bins,
            bin_boundaries=bin_boundaries,
            name=_layer_name(name, "float_discretized"),
        )
        return Feature("float32", layer, output_mode)

    @classmethod
    def integer_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of integers that are looked up."""
        layer = layers.IntegerLookup(
            name=_layer_name(name, "integer_categorical"),
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
        )
        return Feature("int32", layer, output_mode)

    @classmethod
    def string_categorical(
        cls,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: str | None = None,
    ) -> Feature:
        """Return a feature of words that are looked up."""
        layer = layers.StringLookup(
            name=_layer_name(name, "string_categorical"),
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
        )
        return Feature(TEXT, layer, output_mode)

    @classmethod
    def string_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of words in buckets."""
        name = _layer_name(name, "string_hashed")
        return Feature(TEXT, layers.Hashing(num_bins, name=name), output_mode)

    @classmethod
    def integer_hashed(
        cls, num_bins: int, output_mode: str = "one_hot", name: str | None = None
    ) -> Feature:
        """Return a feature of integers in buckets."""
        name = _layer_name(name, "integer_hashed")
        return Feature("int32", layers.Hashing(num_bins, name=name), output_mode)

    # ---- adapting ----------------------------------------------------------------

    def adapt(self, dataset: Any) -> None:
        """Adapt each layer to its column.

        Args:
            dataset: A dictionary of columns, or an iterable of dictionaries, of rows
                or of batches.
        """
        wanted = self._adaptable()
        columns = columns_of(dataset, wanted)
        for name in wanted:
            self.preprocessors[name].adapt(in_batches(columns[name]))
        self._is_adapted = True
        self.encoded_features = None
        self.one_hot_encoders.clear()
        self.get_encoded_features()

    def _adaptable(self) -> list[str]:
        return [name for name in self.features if _learns(self.preprocessors[name])]

    # ---- a functional model ------------------------------------------------------

    def get_inputs(self) -> dict[str, KerasTensor]:
        """Return an Input for each feature."""
        self.get_encoded_features()
        return self.inputs

    def get_encoded_features(self) -> Any:
        """Return what becomes of the inputs, as Keras tensors."""
        if not self._is_adapted and self._adaptable():
            raise ValueError(
                f'You need to call `.adapt(dataset)` on the FeatureSpace "{self.name}" '
                "before you can start using it."
            )
        if self.encoded_features is None:
            self.encoded_features = self._encoded(self.inputs, self._make_encoder)
            self._is_adapted = self.built = True
        return self.encoded_features

    def _encoded(self, columns: Columns, encoder_of: Callable[..., Any]) -> Any:
        """Prepare and cross columns, symbolic or real, and join the features."""
        prepared = {name: self.preprocessors[name](columns[name]) for name in columns}
        crossed = {
            cross.name: self.crossers[cross.name](
                [prepared[name] for name in cross.feature_names]
            )
            for cross in self.crosses
        }
        outputs = {}
        for group in (prepared, crossed):
            for name in sorted(group):
                encoder = encoder_of(name, group[name])
                outputs[name] = group[name] if encoder is None else encoder(group[name])
        if self.output_mode == "dict":
            return outputs
        return self._concat_layer(outputs)(list(outputs.values()))

    def _concat_layer(self, outputs: Columns) -> Any:
        if self.concat is None:
            for name, output in outputs.items():
                if not str(output.dtype).startswith("float"):
                    raise ValueError(
                        f"Feature {name!r} is of type {output.dtype} and cannot be "
                        "joined with the others: encode it by output_mode='one_hot', "
                        "or use FeatureSpace(output_mode='dict')."
                    )
            self.concat = TFDConcat(axis=-1)
        return self.concat

    def _make_encoder(self, name: str, output: Any) -> Any:
        """Make the layer that one-hot encodes a category; None for other features."""
        crosses = {cross.name: cross for cross in self.crosses}
        spec: Any = self.features.get(name) or crosses[name]
        if spec.output_mode != "one_hot":
            return None
        if not str(output.dtype).startswith("int"):
            raise ValueError(
                f"Feature {name!r} has output_mode='one_hot', but its layer gives "
                f"{output.dtype}, no integers: use output_mode='float'."
            )
        layer = self.preprocessors.get(name) or self.crossers[name]
        encoder = layers.CategoryEncoding(_cardinality(name, layer), "multi_hot")
        self.one_hot_encoders[name] = encoder
        return encoder

    # ---- calling -----------------------------------------------------------------

    def __call__(self, data: Any) -> Any:
        """Return the features of rows, or of a single one, by name."""
        if not isinstance(data, dict):
            raise ValueError(
                "A FeatureSpace is called on a dictionary of columns, not on "
                f"{type(data).__name__}."
            )
        if symbolic.any_symbolic(data):
            raise ValueError(
                "A FeatureSpace makes its own inputs: build the model of "
                "`get_inputs()` and `get_encoded_features()`."
            )
        self.get_encoded_features()
        if tensorflow_graph.is_in_graph(data, {}):
            return tensorflow_graph.add_to_graph(
                self, self.compute_output_spec, (data,), {}
            )
        missing = [name for name in self.features if name not in data]
        if missing:
            raise ValueError(f"No data for the feature(s) {', '.join(missing)}.")
        columns = {name: np.asarray(data[name]) for name in self.features}
        is_row = all(column.ndim == 0 for column in columns.values())
        columns = {name: as_column(column) for name, column in columns.items()}
        outputs = self._encoded(
            columns, lambda name, _: self.one_hot_encoders.get(name)
        )
        if not is_row:
            return outputs
        if self.output_mode == "concat":
            return outputs[0]
        return {name: output[0] for name, output in outputs.items()}

    def compute_output_spec(self, data: Any) -> Any:
        """Return the outputs of a call on columns, as Keras tensors."""
        is_row = all(len(column.shape) == 0 for column in data.values())
        return tree.map_leaves(
            lambda output: KerasTensor(output.shape[is_row:], output.dtype),
            self.get_encoded_features(),
        )

    # ---- configuration and files -------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        return {
            "features": serialize_keras_object(self.features),
            "output_mode": self.output_mode,
            "crosses": serialize_keras_object(self.crosses),
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
        }

    def get_build_config(self) -> dict[str, Any]:
        return {
            name: layer.get_build_config() for name, layer in self.preprocessors.items()
        }

    def build_from_config(self, config: dict[str, Any]) -> None:
        for name, layer in self.preprocessors.items():
            if config.get(name):
                layer.build_from_config(config[name])
        self._is_adapted = True

    def save(self, filepath: Any) -> None:
        """Save the adapted features as a `.keras` file, which `load_model` reads."""
        from ganglion import saving

        saving.save_model(self, filepath)

    def save_own_variables(self, store: Any) -> None:
        """All variables are those of the features' layers."""

    def load_own_variables(self, store: Any) -> None:
        """All variables are those of the features' layers."""


def _layer_name(name: str | None, kind: str) -> str:
    return f"{name or unique_name(kind)}_preprocessor"


def _learns(layer: Any) -> bool:
    """Return whether a layer has something to learn that it was not given."""
    if isinstance(layer, layers.Normalization):
        return layer.input_mean is None
    if isinstance(layer, layers.Discretization):
        return layer.num_bins is not None
    return hasattr(layer, "adapt") and not getattr(
        layer, "_has_input_vocabulary", False
    )


def _cardinality(name: str, layer: Any) -> int:
    """Return how many categories a layer distinguishes."""
    if isinstance(layer, (layers.IntegerLookup, layers.StringLookup)):
        return layer.vocabulary_size()
    if isinstance(layer, layers.CategoryEncoding):
        return layer.num_tokens
    if isinstance(layer, layers.Discretization):
        return layer.num_bins or len(layer.bin_boundaries or []) + 1
    if isinstance(layer, (layers.HashedCrossing, layers.Hashing)):
        return layer.num_bins
    raise ValueError(
        f"Feature {name!r} has output_mode='one_hot', but how many categories "
        f"{type(layer).__name__} gives is not known: use output_mode='int'."
    )
