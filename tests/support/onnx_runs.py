"""Runs ONNX files in onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest


def session(source: Any) -> Any:
    """Return a session for a path or the bytes of a file; skip where it cannot run."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    content = source if isinstance(source, bytes) else str(source)
    return runtime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"]
    )


def run(source: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a file for its inputs, in order."""
    runner = session(source)
    names = [port.name for port in runner.get_inputs()]
    return runner.run(None, dict(zip(names, arrays, strict=True)))
