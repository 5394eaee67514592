"""`keras.visualization`: boxes and masks on images, and galleries of them."""

from ganglion.visualization.drawing import draw_bounding_boxes, draw_segmentation_masks
from ganglion.visualization.galleries import (
    plot_bounding_box_gallery,
    plot_image_gallery,
    plot_segmentation_mask_gallery,
)

__all__ = [
    "draw_bounding_boxes",
    "draw_segmentation_masks",
    "plot_bounding_box_gallery",
    "plot_image_gallery",
    "plot_segmentation_mask_gallery",
]
