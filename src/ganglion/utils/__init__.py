"""Keras' utilities: labels, sequences, images, files, seeds, pictures of models."""

from ganglion.oldpaths import attribute_of
from ganglion.progress import (
    Progbar,
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
)
from ganglion.serialization import (
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from ganglion.symbolic import is_symbolic as is_keras_tensor
from ganglion.utils.data import (
    PyDataset,
    Sequence,
    normalize,
    pad_sequences,
    to_categorical,
)
from ganglion.utils.feature_space import FeatureSpace
from ganglion.utils.files import get_file
from ganglion.utils.image_folders import image_dataset_from_directory
from ganglion.utils.images import array_to_img, img_to_array, load_img, save_img
from ganglion.utils.plotting import model_to_dot, plot_model
from ganglion.utils.session import clear_session, set_random_seed
from ganglion.utils.text_folders import text_dataset_from_directory
from ganglion.utils.timeseries import timeseries_dataset_from_array

CustomObjectScope = custom_object_scope

# `keras.utils.np_utils` and other paths of Keras 2.
__getattr__ = attribute_of("ganglion.utils")

__all__ = [
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "image_dataset_from_directory",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "load_img",
    "model_to_dot",
    "normalize",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
]
