"""Boxes and masks drawn onto images, by Pillow and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.images.decoding import pillow
from ganglion.ops.boxes import convert_format

_LETTER_HEIGHT = 22  # pixels of a capital and its descent, at a font scale of one


def batch_of(images: Any, data_format: str | None) -> np.ndarray:
    """Return a batch of images as an array with the channels last."""
    array = np.asarray(ops.convert_to_numpy(images))
    if array.ndim != 4:
        raise ValueError(
            f"`images` must be batched 4D tensor. Received: images.shape={array.shape}"
        )
    is_first = config.data_format_of(data_format) == "channels_first"
    return array.transpose(0, 2, 3, 1) if is_first else array


def draw_bounding_boxes(
    images: Any,
    bounding_boxes: Any,
    bounding_box_format: str,
    class_mapping: dict[int, str] | None = None,
    color: Any = (128, 128, 128),
    line_thickness: int = 2,
    text_thickness: int = 1,
    font_scale: float = 1.0,
    data_format: str | None = None,
) -> np.ndarray:
    """Return images with boxes drawn onto them, as bytes.

    `bounding_boxes` has `boxes` and `labels`, and maybe `confidences`; what has the
    label -1 is left out, and `class_mapping` gives the others names.
    """
    array = batch_of(images, data_format)
    if not isinstance(bounding_boxes, dict):
        raise TypeError(
            f"`bounding_boxes` should be a dict. Received: {type(bounding_boxes)}"
        )
    if not {"boxes", "labels"} <= set(bounding_boxes):
        raise ValueError(
            "`bounding_boxes` should be a dict containing 'boxes' and 'labels' keys. "
            f"Received: {sorted(bounding_boxes)}"
        )
    pictures = _as_bytes(array)
    corners = np.asarray(
        convert_format(
            bounding_boxes["boxes"], bounding_box_format, "xyxy", *array.shape[1:3]
        )
    )
    labels = np.asarray(ops.convert_to_numpy(bounding_boxes["labels"]))
    scores = bounding_boxes.get("confidences")
    pen = _Pen(tuple(color), line_thickness, text_thickness or line_thickness)
    for number, picture in enumerate(pictures):
        titles = [
            _title(label, scores[number][place] if scores is not None else None,
                   class_mapping or {})
            for place, label in enumerate(labels[number].astype(int))
        ]  # fmt: skip
        kept = labels[number].astype(int) != -1
        pen.draw(picture, corners[number], titles, kept, font_scale)
    is_first = config.data_format_of(data_format) == "channels_first"
    return pictures.transpose(0, 3, 1, 2) if is_first else pictures


def _title(label: int, score: Any, names: dict[int, str]) -> str | None:
    name = names.get(int(label))
    return name if name is None or score is None else f"{name} | {float(score):.2f}"


def _as_bytes(images: np.ndarray) -> np.ndarray:
    if images.dtype.kind == "f" and images.size:
        is_unit = images.max() <= 1.0
        images = np.clip(images, 0, 1) * 255 if is_unit else np.clip(images, 0, 255)
    return np.ascontiguousarray(images.astype("uint8"))


class _Pen:
    """What boxes and their names are drawn with."""

    def __init__(self, color: tuple[int, ...], line: int, text: int) -> None:
        self.color, self.line, self.text = color, int(line), int(text)

    def draw(
        self,
        picture: np.ndarray,
        corners: np.ndarray,
        titles: list[str | None],
        kept: np.ndarray,
        font_scale: float,
    ) -> None:
        """Draw into the array of one image."""
        flat = picture[..., 0] if picture.shape[-1] == 1 else picture
        image = pillow().fromarray(np.ascontiguousarray(flat))
        canvas = pillow("ImageDraw").Draw(image)
        color = self.color[0] if picture.shape[-1] == 1 else self.color
        for box, title, is_kept in zip(corners, titles, kept, strict=True):
            if not is_kept:
                continue
            x1, y1, x2, y2 = (int(n) for n in box)
            across, down = sorted((x1, x2)), sorted((y1, y2))
            frame = [across[0], down[0], across[1], down[1]]
            canvas.rectangle(frame, outline=color, width=self.line)
            if title is not None:
                self._write(canvas, title, x1, y1, color, font_scale)
        picture[...] = np.asarray(image).reshape(picture.shape)

    def _write(
        self, canvas: Any, title: str, x: int, y: int, color: Any, scale: float
    ) -> None:
        """Write above a box, or within where there is no room above."""
        height = max(int(_LETTER_HEIGHT * scale), 4)
        place = (x, y - 8 - height)
        if place[1] <= 0:
            place = (x + 3, y + self.text + 3)
        canvas.text(place, title, fill=color, font=font_of(height),
                    stroke_width=max(self.text - 1, 0))  # fmt: skip


def font_of(height: int) -> Any:
    """Return Pillow's own font, letters of about so many pixels."""
    return pillow("ImageFont").load_default(size=height)


def draw_segmentation_masks(
    images: Any,
    segmentation_masks: Any,
    num_classes: int | None = None,
    color_mapping: dict[int, Any] | None = None,
    alpha: float = 0.8,
    blend: bool = True,
    ignore_index: int = -1,
    data_format: str | None = None,
) -> np.ndarray:
    """Return images with the colours of masks laid over them.

    A mask has the number of a class for each pixel, below `num_classes`; blended, the
    result is bytes, and pixels of `ignore_index` are left unchanged.
    """
    pictures = batch_of(images, data_format).astype("float32")
    masks = np.asarray(ops.convert_to_numpy(segmentation_masks))
    if masks.dtype.kind not in "iu":
        raise TypeError(
            "`segmentation_masks` must be in integer dtype. Received: "
            f"segmentation_masks.dtype={masks.dtype}"
        )
    if masks.ndim == 4:
        is_first = config.data_format_of(data_format) == "channels_first"
        masks = masks[:, 0] if is_first else masks[..., 0]
    if num_classes is None:
        num_classes = int(masks.max())
    colors = _palette(num_classes) if color_mapping is None else color_mapping
    colored = pictures.copy()
    for label in range(num_classes):
        if label in colors:
            colored[masks == label] = np.asarray(colors[label], "float32")
    if not blend:
        return colored
    mixed = pictures * (1 - alpha) + colored * alpha
    is_drawn = (masks != ignore_index)[..., None]
    return np.where(is_drawn, mixed, pictures).astype("uint8")


def _palette(count: int) -> dict[int, Any]:
    """Return colours that are far apart, as Keras chooses them; the first is black."""
    steps = np.array([2**25 - 1, 2**15 - 1, 2**21 - 1])
    return {label: (label * steps) % 255 for label in range(count)}
