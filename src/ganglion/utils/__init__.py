"""Keras' utilities: labels, sequences, images, files, seeds, pictures of models."""

from ganglion.config import (
    disable_interactive_logging,
    enable_interactive_logging,
    is_interactive_logging_enabled,
)
from ganglion.dtypes import standardize_dtype
from ganglion.oldpaths import attribute_of
from ganglion.progress import Progbar
from ganglion.serialization import (
    CustomObjectScope,
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from ganglion.symbolic import is_symbolic as is_keras_tensor
from ganglion.utils import bounding_boxes
from ganglion.utils import legacy as legacy
from ganglion.utils.audio_folders import audio_dataset_from_directory
from ganglion.utils.batches import (
    get_source_inputs,
    pack_x_y_sample_weight,
    unpack_x_y_sample_weight,
)
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
from ganglion.utils.settings import Config
from ganglion.utils.splitting import split_dataset
from ganglion.utils.text_folders import text_dataset_from_directory
from ganglion.utils.timeseries import timeseries_dataset_from_array

# `keras.utils.np_utils` and other paths of Keras 2.
__getattr__ = attribute_of("ganglion.utils")

__all__ = [
    "Config",
    "CustomObjectScope",
    "FeatureSpace",
    "Progbar",
    "PyDataset",
    "Sequence",
    "array_to_img",
    "audio_dataset_from_directory",
    "bounding_boxes",
    "clear_session",
    "custom_object_scope",
    "deserialize_keras_object",
    "disable_interactive_logging",
    "enable_interactive_logging",
    "get_custom_objects",
    "get_file",
    "get_registered_name",
    "get_registered_object",
    "get_source_inputs",
    "image_dataset_from_directory",
    "img_to_array",
    "is_interactive_logging_enabled",
    "is_keras_tensor",
    "load_img",
    "model_to_dot",
    "normalize",
    "pack_x_y_sample_weight",
    "pad_sequences",
    "plot_model",
    "register_keras_serializable",
    "save_img",
    "serialize_keras_object",
    "set_random_seed",
    "split_dataset",
    "standardize_dtype",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
    "unpack_x_y_sample_weight",
]
