"""`keras.preprocessing.image`: images changed at random by Keras 2's generator.

>>> from ganglion.preprocessing.image import ImageDataGenerator
"""

from ganglion.compat.image_generator.functions import (
    apply_affine_transform,
    apply_brightness_shift,
    apply_channel_shift,
    random_brightness,
    random_channel_shift,
    random_rotation,
    random_shear,
    random_shift,
    random_zoom,
)  # fmt: skip
from ganglion.compat.image_generator.generator import ImageDataGenerator
from ganglion.compat.image_generator.iterators import (
    DirectoryIterator,
    Iterator,
    NumpyArrayIterator,
)
from ganglion.utils import (
    array_to_img,
    image_dataset_from_directory,
    img_to_array,
    load_img,
    save_img,
)  # fmt: skip
from ganglion.utils.images import smart_resize

__all__ = [
    "DirectoryIterator", "ImageDataGenerator", "Iterator", "NumpyArrayIterator",
    "apply_affine_transform", "apply_brightness_shift", "apply_channel_shift",
    "array_to_img", "image_dataset_from_directory", "img_to_array", "load_img",
    "random_brightness", "random_channel_shift", "random_rotation", "random_shear",
    "random_shift", "random_zoom", "save_img", "smart_resize",
]  # fmt: skip
