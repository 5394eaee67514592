"""Models: `Model` (functional or subclassed) and `Sequential`."""

from ganglion.models.cloning import clone_model
from ganglion.models.config import load_model, model_from_json, save_model
from ganglion.models.model import Functional, Model
from ganglion.models.sequential import Sequential

__all__ = [
    "Functional",
    "Model",
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_json",
    "save_model",
]
