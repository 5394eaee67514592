"""Why a model predicts a class: class activation maps, as arrays and as pictures."""

from ganglion.explain.maps import (
    ActivationMaps,
    WithMaps,
    class_activation_map,
    map_method,
)
from ganglion.explain.pictures import contact_sheet, heat_colors, overlay, write_png

__all__ = [
    "ActivationMaps",
    "WithMaps",
    "class_activation_map",
    "contact_sheet",
    "heat_colors",
    "map_method",
    "overlay",
    "write_png",
]
