"""Flip and zoom in PyTorch, for a whole batch at once: a grid of places, and reading.

This is what `ganglion bench --augment` times; a race gives all engines equal images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion.race.engines import untranslated
from ganglion.recipes import LayerSpec

_BORDERS = {"nearest": "border", "reflect": "reflection", "constant": "zeros"}


def augmentation(kinds: tuple[LayerSpec, ...]) -> Callable[[Any], Any]:
    """Return a function that changes images, channels first, as these layers do."""
    import torch

    known = dict(kinds)
    if not set(known) <= {"RandomFlip", "RandomZoom"} or "RandomZoom" not in known:
        raise untranslated("the augmentation", ", ".join(known))
    zoom, flips = known["RandomZoom"], "RandomFlip" in known
    if flips and known["RandomFlip"].get("mode") != "horizontal":
        raise untranslated("a flip that is not", "horizontal")
    across, down = zoom["width_factor"], zoom["height_factor"]
    border = _BORDERS[zoom["fill_mode"]]

    def change(images: Any) -> Any:
        count = len(images)
        places = torch.zeros(count, 2, 3, device=images.device)
        places[:, 0, 0] = 1 + torch.empty(count).uniform_(*across).to(images.device)
        places[:, 1, 1] = 1 + torch.empty(count).uniform_(*down).to(images.device)
        if flips:
            places[:, 0, 0] *= 1.0 - 2.0 * torch.randint(2, (count,)).to(images.device)
        grid = torch.nn.functional.affine_grid(places, images.shape, align_corners=True)
        return torch.nn.functional.grid_sample(
            images, grid, padding_mode=border, align_corners=True
        )

    return change
