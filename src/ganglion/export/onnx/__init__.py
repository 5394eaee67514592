"""ONNX: models as files for other runtimes, and files of others as models."""

from __future__ import annotations

from typing import Any

__all__ = ["load_onnx"]


def load_onnx(filepath: Any) -> Any:
    """Return the model of an ONNX file, as layers that can be trained.

    Images keep the layout of the file, which is channels first. The weights are those
    of the layers; batch normalisation trains, and dropout drops. Nothing in a file is
    executed, and one that claims to hold more than it does is refused.

    Args:
        filepath: The file; external data is read from files in its folder.
    """
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"Reading ONNX files needs onnx ({error}): pip install 'ganglion-nn[onnx]'"
        ) from None
    from ganglion.export.onnx.importer import read_model

    return read_model(filepath)
