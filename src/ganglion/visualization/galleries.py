"""Galleries: many images in one, with titles and a legend, by Pillow.

They are written to `path`; to show them takes matplotlib.
"""

from __future__ import annotations

import functools
import importlib
import io
import math
import os
from typing import Any, NamedTuple

import numpy as np

from ganglion import config, files, ops
from ganglion.images.decoding import pillow
from ganglion.visualization.drawing import (
    batch_of,
    draw_bounding_boxes,
    draw_segmentation_masks,
    font_of,
)

_LETTERS = 11  # pixels, of titles and the legend
_BLACK, _WHITE, _NOTHING = (0, 0, 0, 255), (255, 255, 255, 255), (255, 255, 255, 0)


class Handle(NamedTuple):
    """An entry of a legend; matplotlib's patches are taken as well."""

    color: tuple[float, ...]
    label: str

    def get_facecolor(self) -> tuple[float, ...]:
        """Return red, green and blue, from 0 to 1."""
        return self.color

    def get_label(self) -> str:
        """Return what the colour stands for."""
        return self.label


def plot_image_gallery(
    images: Any,
    y_true: Any = None,
    y_pred: Any = None,
    label_map: dict[int, str] | None = None,
    rows: int | None = None,
    cols: int | None = None,
    value_range: Any = (0, 255),
    scale: float = 2,
    path: Any = None,
    show: bool | None = None,
    transparent: bool = True,
    dpi: int = 60,
    legend_handles: Any = None,
    data_format: str | None = None,
) -> Any:
    """Put images into rows and columns, and return, write or show the picture.

    An image takes `scale` times `dpi` pixels. With `path` the picture is written there
    (PNG, JPEG and others by its ending); `show` needs matplotlib, and is the default
    without a `path`.
    """
    if path is not None and show:
        raise ValueError(
            "plot_gallery() expects either `path` to be set, or `show` to be true."
        )
    if (y_true is not None or y_pred is not None) and label_map is None:
        raise ValueError(
            "If `y_true` or `y_pred` are provided, a `label_map` must also be provided."
        )
    show = path is None if show is None else show
    plot = _pyplot() if show else None  # before anything is drawn
    batch = batch_of(images, data_format).astype("float32")
    low, high = value_range
    batch = np.clip((batch - low) / (high - low) * 255, 0, 255).astype("uint8")
    rows = rows or math.ceil(math.sqrt(len(batch)))
    cols = cols or max(len(batch) // rows, 1)
    titles = [
        _title(number, y_true, y_pred, label_map or {}) for number in range(rows * cols)
    ]
    picture = _grid(batch, titles, rows, cols, max(int(scale * dpi), 1))
    picture = _with_legend(picture, legend_handles or ())
    if not transparent:
        opaque = pillow().new("RGBA", picture.size, _WHITE)
        picture = pillow().alpha_composite(opaque, picture)
    if path is not None:
        _write(picture, path, dpi)
    elif plot is not None:
        plot.figure(figsize=(cols * scale, rows * scale), frameon=False)
        plot.imshow(np.asarray(picture))
        plot.axis("off")
        plot.show()
        plot.close()
    return picture


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError:
        raise ImportError(
            "To show a gallery takes the package `matplotlib`: `pip install "
            "matplotlib`. Without it, write the gallery to a file with `path=`, or "
            "take the image that is returned with `show=False`."
        ) from None


def _title(number: int, y_true: Any, y_pred: Any, names: dict[int, str]) -> str:
    parts = []
    for word, labels in (("Label", y_true), ("Pred", y_pred)):
        if labels is not None and number < len(labels):
            label = int(np.asarray(ops.convert_to_numpy(labels))[number])
            parts.append(f"{word}: {names.get(label, 'Unknown')}")
    return "  ".join(parts)


def _grid(batch: np.ndarray, titles: list[str], rows: int, cols: int, cell: int) -> Any:
    above = _LETTERS + 4 if any(titles) else 0
    picture = pillow().new("RGBA", (cols * cell, rows * (cell + above)), _NOTHING)
    canvas = pillow("ImageDraw").Draw(picture)
    for number, pixels in enumerate(batch[: rows * cols]):
        left, top = number % cols * cell, number // cols * (cell + above)
        image = pillow().fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
        larger = cell / max(image.size)
        size = tuple(max(int(n * larger), 1) for n in image.size)
        image = image.convert("RGBA").resize(size)
        corner = left + (cell - size[0]) // 2, top + above + (cell - size[1]) // 2
        picture.paste(image, corner)
        if titles[number]:
            canvas.text((left + 2, top + 1), titles[number], fill=_BLACK,
                        font=font_of(_LETTERS))  # fmt: skip
    return picture


def _with_legend(picture: Any, handles: Any) -> Any:
    if not handles:
        return picture
    line = _LETTERS + 6
    size = (picture.size[0], picture.size[1] + line * len(handles))
    larger = pillow().new("RGBA", size, _NOTHING)
    larger.paste(picture, (0, 0))
    canvas = pillow("ImageDraw").Draw(larger)
    for number, handle in enumerate(handles):
        top = picture.size[1] + number * line + 3
        color = tuple(int(255 * part) for part in handle.get_facecolor()[:3])
        canvas.rectangle([3, top, 3 + _LETTERS, top + _LETTERS], fill=(*color, 255))
        canvas.text((_LETTERS + 8, top - 1), handle.get_label(), fill=_BLACK,
                    font=font_of(_LETTERS))  # fmt: skip
    return larger


def _write(picture: Any, path: Any, dpi: int) -> None:
    known = pillow().registered_extensions()
    ending = os.path.splitext(os.fspath(path))[1].lower()
    if ending not in known:
        raise ValueError(f"`path` must end as an image file does, got {str(path)!r}.")
    kind = known[ending]
    buffer = io.BytesIO()
    if kind == "JPEG":  # which has no transparency
        white = pillow().new("RGBA", picture.size, _WHITE)
        picture = pillow().alpha_composite(white, picture).convert("RGB")
    picture.save(buffer, format=kind, dpi=(dpi, dpi))
    files.write_file(path, buffer.getvalue())


def plot_bounding_box_gallery(
    images: Any,
    bounding_box_format: str,
    y_true: Any = None,
    y_pred: Any = None,
    value_range: Any = (0, 255),
    true_color: Any = (0, 188, 212),
    pred_color: Any = (255, 235, 59),
    line_thickness: int = 2,
    font_scale: float = 1.0,
    text_thickness: int | None = None,
    class_mapping: dict[int, str] | None = None,
    ground_truth_mapping: dict[int, str] | None = None,
    prediction_mapping: dict[int, str] | None = None,
    legend: bool = False,
    legend_handles: Any = None,
    rows: int | None = None,
    cols: int | None = None,
    data_format: str | None = None,
    **kwargs: Any,
) -> Any:
    """Put images with their boxes, the true and the predicted, into a gallery.

    More arguments are those of `plot_image_gallery`.
    """
    if legend and legend_handles:
        raise ValueError(
            "Only pass `legend` OR `legend_handles` to "
            "`keras.visualization.plot_bounding_box_gallery()`."
        )
    pictures = batch_of(images, data_format)
    draw = functools.partial(
        draw_bounding_boxes,
        bounding_box_format=bounding_box_format,
        line_thickness=line_thickness,
        text_thickness=text_thickness or line_thickness,
        font_scale=font_scale,
        data_format="channels_last",
    )
    for boxes, color, names in (
        (y_true, true_color, ground_truth_mapping or class_mapping),
        (y_pred, pred_color, prediction_mapping or class_mapping),
    ):
        if boxes is not None:
            pictures = draw(pictures, boxes, color=color, class_mapping=names)
    if legend:
        colors = [tuple(part / 255 for part in c) for c in (true_color, pred_color)]
        words = ("Ground Truth", "Prediction")
        legend_handles = [Handle(*pair) for pair in zip(colors, words, strict=True)]
    return plot_image_gallery(
        pictures, value_range=value_range, legend_handles=legend_handles, rows=rows,
        cols=cols, data_format="channels_last", **kwargs,
    )  # fmt: skip


def plot_segmentation_mask_gallery(
    images: Any,
    num_classes: int,
    value_range: Any = (0, 255),
    y_true: Any = None,
    y_pred: Any = None,
    color_mapping: dict[int, Any] | None = None,
    blend: bool = True,
    alpha: float = 0.8,
    ignore_index: int = -1,
    data_format: str | None = None,
    **kwargs: Any,
) -> Any:
    """Show images side by side with their true and predicted masks.

    More arguments are those of `plot_image_gallery`.
    """
    pictures = batch_of(images, data_format)
    is_first = config.data_format_of(data_format) == "channels_first"
    columns = [pictures]
    for masks in (y_true, y_pred):
        if masks is None:
            continue
        numbers = np.asarray(ops.convert_to_numpy(masks)).astype("int32")
        if is_first and numbers.ndim == 4:
            numbers = numbers.transpose(0, 2, 3, 1)
        drawn = draw_segmentation_masks(
            pictures, numbers, num_classes, color_mapping, alpha, blend, ignore_index,
            "channels_last",
        )  # fmt: skip
        columns.append(drawn)
    side_by_side = np.stack(columns, axis=1)
    flat = side_by_side.reshape(-1, *pictures.shape[1:])
    return plot_image_gallery(
        flat, value_range=value_range, rows=len(pictures), cols=len(columns),
        data_format="channels_last", **kwargs,
    )  # fmt: skip
