"""`ganglion.ops.image`: functions on images, as nodes of the graph, with gradients."""

from ganglion.ops.image.borders import crop_images, pad_images
from ganglion.ops.image.colors import hsv_to_rgb, rgb_to_grayscale, rgb_to_hsv
from ganglion.ops.image.filters import (
    extract_patches,
    extract_patches_3d,
    gaussian_blur,
    sobel_edges,
    ssim,
)
from ganglion.ops.image.resizing import resize, scale_and_translate
from ganglion.ops.image.warping import (
    affine_transform,
    elastic_transform,
    map_coordinates,
    perspective_transform,
)

__all__ = [
    "affine_transform",
    "crop_images",
    "elastic_transform",
    "extract_patches",
    "extract_patches_3d",
    "gaussian_blur",
    "hsv_to_rgb",
    "map_coordinates",
    "pad_images",
    "perspective_transform",
    "resize",
    "rgb_to_grayscale",
    "rgb_to_hsv",
    "scale_and_translate",
    "sobel_edges",
    "ssim",
]
