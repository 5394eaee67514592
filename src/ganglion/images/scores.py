"""Scores of a classifier: accuracy, precision, recall, confusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.datasets import png
from ganglion.images.decoding import pillow
from ganglion.system.terminal import cell, printable

CELL, MARGIN, LETTER = 44, 14, 7  # pixels of the picture
INK, PAPER, BLUE = (20, 20, 20), (255, 255, 255), (8, 64, 129)
NAME_WIDTH = 16  # letters of a class name in a table's head
MOST_DRAWN = 40  # classes in a terminal


@dataclass(frozen=True)
class Scores:
    """A model's predictions for images whose classes are known.

    >>> scores = Scores.of([0, 0, 1, 1], [0, 1, 1, 1], ("cat", "dog"))
    >>> scores.accuracy, scores.confusion.tolist()
    (0.75, [[1, 1], [0, 2]])
    >>> scores.recall.tolist(), scores.precision.round(3).tolist()
    ([0.5, 1.0], [1.0, 0.667])
    """

    classes: tuple[str, ...]
    confusion: np.ndarray  # [class, prediction]

    @classmethod
    def of(cls, y: Any, predicted: Any, classes: Sequence[str]) -> Scores:
        """Count the predictions for each class."""
        table = np.zeros((len(classes), len(classes)), dtype="int64")
        np.add.at(table, (np.asarray(y), np.asarray(predicted)), 1)
        return cls(tuple(classes), table)

    @property
    def count(self) -> int:
        """The number of images."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share that is right."""
        return float(np.trace(self.confusion) / max(self.count, 1))

    @property
    def recall(self) -> np.ndarray:
        """Of each class, the share that was found; NaN where there are no images."""
        return _share(np.diag(self.confusion), self.confusion.sum(axis=1))

    @property
    def precision(self) -> np.ndarray:
        """Of what was called a class, the share that is; NaN where nothing was."""
        return _share(np.diag(self.confusion), self.confusion.sum(axis=0))

    def as_data(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; what does not exist is null."""
        each = {
            name: {
                "precision": _number(self.precision[i]),
                "recall": _number(self.recall[i]),
                "images": int(self.confusion[i].sum()),
            }
            for i, name in enumerate(self.classes)
        }
        return {
            "images": self.count,
            "accuracy": self.accuracy,
            "classes": each,
            "confusion": self.confusion.tolist(),
        }


def _share(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    shares = np.full(len(part), np.nan)
    return np.divide(part, total, out=shares, where=total > 0)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def class_table(scores: Scores) -> Any:
    """Return precision and recall of every class as a table for the terminal."""
    from rich.table import Table

    table = Table("class", title="classes", title_justify="left")
    for head in ("images", "precision", "recall"):
        table.add_column(head, justify="right")
    parts = zip(scores.precision, scores.recall, strict=True)
    for i, (precision, recall) in enumerate(parts):
        cells = ["–" if np.isnan(x) else f"{x:.4f}" for x in (precision, recall)]
        name = cell(printable(scores.classes[i]))
        table.add_row(name, str(scores.confusion[i].sum()), *cells)
    return table


def confusion_table(scores: Scores) -> Any:
    """Return the confusion matrix as a table: a row a class, a column a prediction."""
    from rich.box import SIMPLE
    from rich.style import Style
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "is \\ said",
        title="confusion: rows are the true classes",
        title_justify="left",
        box=SIMPLE,
        padding=(0, 0),
        pad_edge=False,
    )
    for name in scores.classes:
        table.add_column(Text(f" {printable(name)[:NAME_WIDTH]} "), justify="center")
    totals = np.maximum(scores.confusion.sum(axis=1), 1)
    for i, row in enumerate(scores.confusion):
        cells = []
        for value in row:
            red, green, blue = _shade(value / totals[i])
            ink = "white" if value / totals[i] > 0.5 else "black"
            style = Style(color=ink, bgcolor=f"rgb({red},{green},{blue})")
            cells.append(Text(f"{value:^5}", style=style))
        table.add_row(Text(printable(scores.classes[i])), *cells)
    return table


def _shade(share: float) -> tuple[int, int, int]:
    """Return the colour of a share: paper for none, blue for all."""
    parts = zip(PAPER, BLUE, strict=True)
    red, green, blue = (round(a + (b - a) * float(share)) for a, b in parts)
    return red, green, blue


def picture(scores: Scores) -> Any:
    """Return the confusion matrix as a Pillow image."""
    image_module, draw_module = pillow(), pillow("ImageDraw")
    font = pillow("ImageFont").load_default()
    count = len(scores.classes)
    names = [printable(name) for name in scores.classes]
    names = [name if len(name) <= 24 else name[:23] + "…" for name in names]
    left = MARGIN + LETTER * max(map(len, [*names, "is"])) + 8
    top = MARGIN + LETTER * max(map(len, names)) + 26
    image = image_module.new(
        "RGB", (left + CELL * count + MARGIN, top + CELL * count + MARGIN), PAPER
    )
    draw = draw_module.Draw(image)
    draw.text((MARGIN, MARGIN), f"accuracy {scores.accuracy:.4f}", INK, font=font)
    totals = np.maximum(scores.confusion.sum(axis=1), 1)
    for i in range(count):
        y = top + CELL * i
        draw.text((left - 6, y + CELL // 2), names[i], INK, font=font, anchor="rm")
        _upright_text(image, names[i], (left + CELL * i + CELL // 2, top - 6), font)
        for j in range(count):
            x, share = left + CELL * j, scores.confusion[i, j] / totals[i]
            box = (x, y, x + CELL - 2, y + CELL - 2)
            draw.rectangle(box, fill=_shade(share))
            ink = PAPER if share > 0.5 else INK
            middle = (x + CELL // 2, y + CELL // 2)
            text = str(scores.confusion[i, j])
            draw.text(middle, text, ink, font=font, anchor="mm")
    return image


def _upright_text(image: Any, text: str, foot: tuple[int, int], font: Any) -> None:
    """Write from the bottom up, beginning at a point."""
    width = int(font.getlength(text)) + 2
    line = pillow().new("RGB", (width, 14), PAPER)
    pillow("ImageDraw").Draw(line).text((0, 7), text, INK, font=font, anchor="lm")
    image.paste(line.rotate(90, expand=True), (foot[0] - 7, foot[1] - width))


def write_picture(scores: Scores, path: Path) -> None:
    """Write the confusion matrix as a PNG file, atomically."""
    from ganglion.saving.files import write_checked

    data = png.encode(np.asarray(picture(scores)))
    write_checked(path, lambda file: file.write(data))
