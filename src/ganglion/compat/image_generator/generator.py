"""Keras 2's `ImageDataGenerator`: images that are changed at random, batch by batch.

Given to `fit`, what it does becomes a part of the compiled step; used as an iterator,
it computes the same in NumPy.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ganglion import config, ops, random
from ganglion.compat.image_generator import changes
from ganglion.compat.image_generator.directory import DirectoryIterator
from ganglion.compat.image_generator.iterators import NumpyArrayIterator
from ganglion.compat.image_generator.ranges import (
    check,
    is_range,
    one_shift,
    shift,
    zooms,
)
from ganglion.ops.sampling import Filling
from ganglion.variables import draw_seed

__all__ = ["ImageDataGenerator"]


class ImageDataGenerator:
    """Changes images at random: arguments and meaning are those of Keras.

    ``zoom_range=0.5`` draws two numbers from 0.5 to 1.5, one for each axis.

    >>> made = ImageDataGenerator(zoom_range=0.5, horizontal_flip=True)
    >>> made.zoom_range
    [0.5, 1.5]
    >>> batches = made.flow(np.zeros((5, 8, 8, 3)), np.arange(5), batch_size=2)
    >>> x, y = batches[0]
    >>> x.shape, len(batches)
    ((2, 8, 8, 3), 3)
    """

    featurewise_center: bool
    samplewise_center: bool
    featurewise_std_normalization: bool
    samplewise_std_normalization: bool
    zca_whitening: bool
    zca_epsilon: float
    rotation_range: float
    width_shift_range: Any
    height_shift_range: Any
    brightness_range: Any
    shear_range: float
    channel_shift_range: float
    fill_mode: str
    cval: float
    horizontal_flip: bool
    vertical_flip: bool
    rescale: float | None
    preprocessing_function: Any
    interpolation_order: int

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
        given = {k: v for k, v in locals().items() if k != "self"}
        check(**given)
        vars(self).update(given)
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
            if given[f"{kind}_std_normalization"]:
                self._imply(f"{kind}_std_normalization", f"{kind}_center", True)

    def _imply(self, given: str, name: str, value: bool) -> None:
        if getattr(self, name) != value:
            warnings.warn(f"`{given}` sets `{name}={value}`.", stacklevel=4)
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
        return NumpyArrayIterator(
            x,
            y,
            self,
            batch_size=batch_size,
            shuffle=shuffle,
            sample_weight=sample_weight,
            seed=seed,
            data_format=self.data_format,
            save_to_dir=save_to_dir,
            save_prefix=save_prefix,
            save_format=save_format,
            ignore_class_split=ignore_class_split,
            subset=subset,
            dtype=self.dtype,
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
        """Return batches of changed images from a folder with a folder a class."""
        given = {k: v for k, v in locals().items() if k not in ("self", "directory")}
        return DirectoryIterator(
            directory, self, data_format=self.data_format, dtype=self.dtype, **given
        )

    def flow_from_dataframe(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: tables of file names are not read."""
        raise NotImplementedError(
            "ImageDataGenerator.flow_from_dataframe is not there: read the images with "
            "keras.utils.load_img and use `flow`, or `flow_from_directory`."
        )

    # ---- parameters ----------------------------------------------------------------

    def fingerprint(self) -> tuple[Any, ...]:
        """Return what a compiled step depends on, for comparing."""
        return tuple(
            (name, id(value) if isinstance(value, np.ndarray) else repr(value))
            for name, value in sorted(vars(self).items())
        )

    @property
    def in_the_step(self) -> bool:
        """Whether all that it does can be a part of a compiled step."""
        return self.preprocessing_function is None

    @property
    def _filling(self) -> Filling:
        return Filling(self.fill_mode, float(self.cval), like_scipy=True)

    def drawn(self, count: int, shape: tuple[int, ...], seed: Any) -> dict[str, Any]:
        """Draw the parameters of a batch, each a number for each image."""

        def uniform(low: float, high: float) -> Any:
            return random.uniform((count,), float(low), float(high), seed=seed)

        made: dict[str, Any] = {}
        if self.rotation_range:
            made["theta"] = uniform(-self.rotation_range, self.rotation_range)
        if is_range(self.height_shift_range):
            made["tx"] = shift(self.height_shift_range, shape[0], uniform)
        if is_range(self.width_shift_range):
            made["ty"] = shift(self.width_shift_range, shape[1], uniform)
        if self.shear_range:
            made["shear"] = uniform(-self.shear_range, self.shear_range)
        if list(self.zoom_range) != [1, 1]:
            made["zx"], made["zy"] = (uniform(*self.zoom_range) for _ in range(2))
        if self.horizontal_flip:
            made["flip_horizontal"] = uniform(0, 1) < 0.5
        if self.vertical_flip:
            made["flip_vertical"] = uniform(0, 1) < 0.5
        if self.channel_shift_range:
            most = self.channel_shift_range
            made["channel_shift_intensity"] = uniform(-most, most)
        if self.brightness_range is not None:
            made["brightness"] = uniform(*self.brightness_range)
        return made

    def get_random_transform(
        self, img_shape: tuple[int, ...], seed: Any = None
    ) -> dict[str, Any]:
        """Draw the parameters of one image; with a seed, they are those of Keras."""
        rng = np.random.RandomState(draw_seed() if seed is None else seed)
        spread = self.rotation_range
        theta = rng.uniform(-spread, spread) if spread else 0
        tx = one_shift(self.height_shift_range, img_shape[0], rng)
        ty = one_shift(self.width_shift_range, img_shape[1], rng)
        spread = self.shear_range
        shear = rng.uniform(-spread, spread) if spread else 0
        zx, zy = 1, 1
        if list(self.zoom_range) != [1, 1]:
            zx, zy = rng.uniform(self.zoom_range[0], self.zoom_range[1], 2)
        across = (rng.random_sample() < 0.5) * self.horizontal_flip
        down = (rng.random_sample() < 0.5) * self.vertical_flip
        most, bounds = self.channel_shift_range, self.brightness_range
        return {
            "theta": theta,
            "tx": tx,
            "ty": ty,
            "shear": shear,
            "zx": zx,
            "zy": zy,
            "flip_horizontal": across,
            "flip_vertical": down,
            "channel_shift_intensity": rng.uniform(-most, most) if most else None,
            "brightness": None if bounds is None else rng.uniform(*bounds),
        }

    # ---- changing images -------------------------------------------------------------

    def changed(self, x: Any, given: dict[str, Any]) -> Any:
        """Change a batch of images by parameters, a number of each for each image."""
        x = changes.moved(x, given, self._filling, self.interpolation_order)
        x = ops.cast(x, self.dtype)
        if given.get("channel_shift_intensity") is not None:
            x = changes.channel_shifted(x, given["channel_shift_intensity"])
        if given.get("brightness") is not None:
            x = changes.brightened(x, given["brightness"])
        return x

    def augmented(self, x: Any, seed: Any) -> Any:
        """Change a batch at random and standardise it: the whole of a step's part."""
        changed = self.changed(x, self.drawn(x.shape[0], tuple(x.shape[1:]), seed))
        return self._standardized_by_data(self._standardized_alone(changed))

    def apply_transform(self, x: Any, transform_parameters: dict[str, Any]) -> Any:
        """Change one image by given parameters."""
        given: dict[str, Any] = {}
        neutral = {"zx": 1, "zy": 1}
        for name, value in transform_parameters.items():
            if "flip" in name:
                if value:
                    given[name] = np.array([True])
            elif value is not None and value != neutral.get(name, 0):
                given[name] = np.array([value], "float32")
        for name in ("channel_shift_intensity", "brightness"):
            if transform_parameters.get(name) is not None:
                given[name] = np.array([transform_parameters[name]], "float32")
        image = np.asarray(x, self.dtype)
        if image.ndim != 3:
            raise ValueError(
                "`apply_transform` changes one image (rows, columns, channels), got an "
                f"array of shape {image.shape}."
            )
        return np.asarray(self.changed(image[None], given))[0]

    def random_transform(self, x: Any, seed: Any = None) -> Any:
        """Change one image at random."""
        return self.apply_transform(x, self.get_random_transform(x.shape, seed))

    def _standardized_alone(self, x: Any) -> Any:
        how = (self.samplewise_center, self.samplewise_std_normalization)
        return changes.standardized_alone(x, self.rescale, *how)

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
        made = np.asarray(x)
        if self.preprocessing_function is not None:
            made = np.asarray(self.preprocessing_function(made))
        # Keras takes one mean over all that it is given, an image or a batch.
        whole = made.reshape(1, -1, *made.shape[-2:]) if made.ndim == 4 else made[None]
        alone = np.asarray(self._standardized_alone(whole.astype(self.dtype)))
        batch = alone.reshape(made.shape if made.ndim == 4 else (1, *made.shape))
        made = np.asarray(self._standardized_by_data(batch)).reshape(np.shape(x))
        if isinstance(x, np.ndarray) and x.dtype == made.dtype:
            x[...] = made
            return x
        return made

    def _warn_unless_fitted(self) -> None:
        needs = {
            "featurewise_center": self.mean,
            "featurewise_std_normalization": self.std,
            "zca_whitening": self.zca_whitening_matrix,
        }
        for name, found in needs.items():
            if getattr(self, name) and found is None:
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
            turns = np.concatenate([x] * rounds)
            pairs = zip(turns, seeds, strict=True)
            x = np.stack([self.random_transform(one, int(s)) for one, s in pairs])
        if self.featurewise_center:
            self.mean = x.mean(axis=(0, 1, 2)).reshape(1, 1, -1)
            x -= self.mean
        if self.featurewise_std_normalization:
            self.std = x.std(axis=(0, 1, 2)).reshape(1, 1, -1)
            x /= self.std + 1e-6
        if self.zca_whitening:
            self.zca_whitening_matrix = changes.whitening_of(x, self.zca_epsilon)
