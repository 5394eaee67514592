"""Keras 2's `ImageDataGenerator`: images that are changed at random, batch by batch.

In `fit` its transformations become a part of the compiled step; as an iterator it
computes the same eagerly.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import config, ops, random
from ganglion.compat.image_generator import changes
from ganglion.compat.image_generator.draws import (
    check_settings,
    is_range,
    shift,
    shift_of_image,
    zooms,
)
from ganglion.compat.image_generator.iterators import (
    DirectoryIterator,
    NumpyArrayIterator,
)
from ganglion.ops.sampling import Filling
from ganglion.variables import draw_seed

__all__ = ["ImageDataGenerator"]


class ImageDataGenerator:
    """Changes images at random: arguments and meaning are those of Keras.

    ``zoom_range=0.5`` draws two numbers from 0.5 to 1.5, one for each axis.

    >>> generator = ImageDataGenerator(zoom_range=0.5, horizontal_flip=True)
    >>> generator.zoom_range
    [0.5, 1.5]
    >>> batches = generator.flow(np.zeros((5, 8, 8, 3)), np.arange(5), batch_size=2)
    >>> x, y = batches[0]
    >>> x.shape, len(batches)
    ((2, 8, 8, 3), 3)
    """

    if TYPE_CHECKING:  # the arguments are attributes

        def __getattr__(self, name: str) -> Any: ...

    def __init__(
        self,
        featurewise_center: bool = False,
        samplewise_center: bool = False,
        featurewise_std_normalization: bool = False,
        samplewise_std_normalization: bool = False,
        zca_whitening: bool = False,
        zca_epsilon: float = 1e-6,
        rotation_range: float = 0,
        width_shift_range: Any = 0.0,
        height_shift_range: Any = 0.0,
        brightness_range: Any = None,
        shear_range: float = 0.0,
        zoom_range: Any = 0.0,
        channel_shift_range: float = 0.0,
        fill_mode: str = "nearest",
        cval: float = 0.0,
        horizontal_flip: bool = False,
        vertical_flip: bool = False,
        rescale: float | None = None,
        preprocessing_function: Any = None,
        data_format: str | None = None,
        validation_split: float = 0.0,
        interpolation_order: int = 1,
        dtype: Any = None,
    ) -> None:
        settings = {k: v for k, v in locals().items() if k != "self"}
        check_settings(settings)
        vars(self).update(settings)
        self.zoom_range = zooms(zoom_range)
        self.data_format = config.image_data_format()
        self.channel_axis, self.row_axis, self.col_axis = 3, 1, 2
        self.dtype = dtype or config.floatx()
        self._validation_split = validation_split
        self.mean: Any = None
        self.std: Any = None
        self.zca_whitening_matrix: Any = None
        # Keras 2's: whitening and deviations need means, and whitening has deviations.
        if zca_whitening:
            self._imply("zca_whitening", "featurewise_center", True)
            self._imply("zca_whitening", "featurewise_std_normalization", False)
        for kind in ("featurewise", "samplewise"):
            if settings[f"{kind}_std_normalization"]:
                self._imply(f"{kind}_std_normalization", f"{kind}_center", True)

    def _imply(self, setting: str, name: str, value: bool) -> None:
        if getattr(self, name) != value:
            warnings.warn(f"`{setting}` sets `{name}={value}`.", stacklevel=4)
            setattr(self, name, value)

    # ---- batches -------------------------------------------------------------------

    def flow(
        self,
        x: Any,
        y: Any = None,
        batch_size: int = 32,
        shuffle: bool = True,
        sample_weight: Any = None,
        seed: Any = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        ignore_class_split: bool = False,
        subset: str | None = None,
    ) -> NumpyArrayIterator:
        """Return batches of changed images and their labels, epoch after epoch."""
        rest = {k: v for k, v in locals().items() if k not in ("self", "x", "y")}
        return NumpyArrayIterator(
            x, y, self, data_format=self.data_format, dtype=self.dtype, **rest
        )

    def flow_from_directory(
        self,
        directory: Any,
        target_size: tuple[int, int] = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: Any = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
    ) -> DirectoryIterator:
        """Return batches of changed images from a folder with a folder per class."""
        rest = {k: v for k, v in locals().items() if k not in ("self", "directory")}
        return DirectoryIterator(
            directory, self, data_format=self.data_format, dtype=self.dtype, **rest
        )

    def flow_from_dataframe(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: tables of file names are not read."""
        raise NotImplementedError(
            "ImageDataGenerator.flow_from_dataframe is not there: read the images with "
            "keras.utils.load_img and use `flow`, or `flow_from_directory`."
        )

    # ---- parameters ----------------------------------------------------------------

    def fingerprint(self) -> tuple[Any, ...]:
        """Return a key of all settings that a compiled step depends on."""
        return tuple(
            (name, id(value) if isinstance(value, np.ndarray) else repr(value))
            for name, value in sorted(vars(self).items())
        )

    @property
    def in_the_step(self) -> bool:
        """Whether all of its transformations can be part of a compiled step."""
        return self.preprocessing_function is None

    def drawn(self, count: int, shape: tuple[int, ...], seed: Any) -> dict[str, Any]:
        """Draw the parameters of a batch, each a number for each image."""

        def uniform(low: float, high: float) -> Any:
            return random.uniform((count,), float(low), float(high), seed=seed)

        drawn: dict[str, Any] = {}
        if self.rotation_range:
            drawn["theta"] = uniform(-self.rotation_range, self.rotation_range)
        if is_range(self.height_shift_range):
            drawn["tx"] = shift(self.height_shift_range, shape[0], uniform)
        if is_range(self.width_shift_range):
            drawn["ty"] = shift(self.width_shift_range, shape[1], uniform)
        if self.shear_range:
            drawn["shear"] = uniform(-self.shear_range, self.shear_range)
        if list(self.zoom_range) != [1, 1]:
            drawn["zx"], drawn["zy"] = (uniform(*self.zoom_range) for _ in range(2))
        if self.horizontal_flip:
            drawn["flip_horizontal"] = uniform(0, 1) < 0.5
        if self.vertical_flip:
            drawn["flip_vertical"] = uniform(0, 1) < 0.5
        if self.channel_shift_range:
            most = self.channel_shift_range
            drawn["channel_shift_intensity"] = uniform(-most, most)
        if self.brightness_range is not None:
            drawn["brightness"] = uniform(*self.brightness_range)
        return drawn

    def get_random_transform(
        self, img_shape: tuple[int, ...], seed: Any = None
    ) -> dict[str, Any]:
        """Draw the parameters of one image; with a seed, they are those of Keras."""
        rng = np.random.RandomState(draw_seed() if seed is None else seed)

        def uniform(limit: float, default: Any = 0) -> Any:
            return rng.uniform(-limit, limit) if limit else default

        theta = uniform(self.rotation_range)
        tx = shift_of_image(self.height_shift_range, img_shape[0], rng)
        ty = shift_of_image(self.width_shift_range, img_shape[1], rng)
        shear = uniform(self.shear_range)
        zx, zy = 1, 1
        if list(self.zoom_range) != [1, 1]:
            zx, zy = rng.uniform(self.zoom_range[0], self.zoom_range[1], 2)
        across = (rng.random_sample() < 0.5) * self.horizontal_flip
        down = (rng.random_sample() < 0.5) * self.vertical_flip
        bounds = self.brightness_range
        return {
            "theta": theta,
            "tx": tx,
            "ty": ty,
            "shear": shear,
            "zx": zx,
            "zy": zy,
            "flip_horizontal": across,
            "flip_vertical": down,
            "channel_shift_intensity": uniform(self.channel_shift_range, None),
            "brightness": None if bounds is None else rng.uniform(*bounds),
        }

    # ---- changing images -------------------------------------------------------------

    def changed(self, x: Any, parameters: dict[str, Any]) -> Any:
        """Change a batch of images by parameters, a number of each for each image."""
        filling = Filling(self.fill_mode, float(self.cval), like_scipy=True)
        x = changes.moved(x, parameters, filling, self.interpolation_order)
        x = ops.cast(x, self.dtype)
        if parameters.get("channel_shift_intensity") is not None:
            x = changes.channel_shifted(x, parameters["channel_shift_intensity"])
        if parameters.get("brightness") is not None:
            x = changes.brightened(x, parameters["brightness"])
        return x

    def augmented(self, x: Any, seed: Any) -> Any:
        """Change a batch at random and standardise it, as a step does."""
        changed = self.changed(x, self.drawn(x.shape[0], tuple(x.shape[1:]), seed))
        return self._standardized_by_data(self._standardized_alone(changed))

    def apply_transform(self, x: Any, transform_parameters: dict[str, Any]) -> Any:
        """Change one image by given parameters."""
        parameters: dict[str, Any] = {}
        neutral = {"zx": 1, "zy": 1}
        for name, value in transform_parameters.items():
            if "flip" in name:
                if value:
                    parameters[name] = np.array([True])
            elif value is not None and value != neutral.get(name, 0):
                parameters[name] = np.array([value], "float32")
        for name in ("channel_shift_intensity", "brightness"):
            if transform_parameters.get(name) is not None:
                parameters[name] = np.array([transform_parameters[name]], "float32")
        image = np.asarray(x, self.dtype)
        if image.ndim != 3:
            raise ValueError(
                "`apply_transform` changes one image (rows, columns, channels), got an "
                f"array of shape {image.shape}."
            )
        return np.asarray(self.changed(image[None], parameters))[0]

    def random_transform(self, x: Any, seed: Any = None) -> Any:
        """Change one image at random."""
        return self.apply_transform(x, self.get_random_transform(x.shape, seed))

    def _standardized_alone(self, x: Any) -> Any:
        return changes.standardized_alone(
            x, self.rescale, self.samplewise_center, self.samplewise_std_normalization
        )

    def _standardized_by_data(self, x: Any) -> Any:
        self._warn_unless_fitted()
        return changes.standardized_by_data(
            x,
            self.mean if self.featurewise_center else None,
            self.std if self.featurewise_std_normalization else None,
            self.zca_whitening_matrix if self.zca_whitening else None,
        )

    def standardize(self, x: Any) -> Any:
        """Scale and centre one image, or a batch, in place as Keras does."""
        array = np.asarray(x)
        if self.preprocessing_function is not None:
            array = np.asarray(self.preprocessing_function(array))
        shape = array.shape if array.ndim == 4 else (1, *array.shape)
        # Keras takes a single mean over all that it is given, an image or a batch.
        image = array.reshape(1, -1, *shape[-2:]) if array.ndim == 4 else array[None]
        alone = np.asarray(self._standardized_alone(image.astype(self.dtype)))
        batch = self._standardized_by_data(alone.reshape(shape))
        result = np.asarray(batch).reshape(np.shape(x))
        if isinstance(x, np.ndarray) and x.dtype == result.dtype:
            x[...] = result
            return x
        return result

    def _warn_unless_fitted(self) -> None:
        needs = {
            "featurewise_center": self.mean,
            "featurewise_std_normalization": self.std,
            "zca_whitening": self.zca_whitening_matrix,
        }
        for name, statistic in needs.items():
            if getattr(self, name) and statistic is None:
                warnings.warn(
                    f"This ImageDataGenerator has `{name}`, but was not fitted: call "
                    "`fit(images)` first.",
                    stacklevel=3,
                )

    def fit(
        self, x: Any, augment: bool = False, rounds: int = 1, seed: Any = None
    ) -> None:
        """Find mean, deviation and whitening matrix of sample images."""
        x = np.array(x, dtype=self.dtype)
        if x.ndim != 4:
            raise ValueError(
                "`fit` needs images of shape (images, rows, columns, channels), got "
                f"{x.shape}."
            )
        if self.rescale:
            x *= self.rescale
        if augment:
            rng = np.random.RandomState(draw_seed() if seed is None else seed)
            seeds = rng.randint(0, 2**31 - 1, rounds * len(x))
            pairs = zip(np.concatenate([x] * rounds), seeds, strict=True)
            x = np.stack([self.random_transform(image, int(s)) for image, s in pairs])
        if self.featurewise_center:
            self.mean = x.mean(axis=(0, 1, 2)).reshape(1, 1, -1)
            x -= self.mean
        if self.featurewise_std_normalization:
            self.std = x.std(axis=(0, 1, 2)).reshape(1, 1, -1)
            x /= self.std + 1e-6
        if self.zca_whitening:
            self.zca_whitening_matrix = changes.whitening_of(x, self.zca_epsilon)
