"""ONNX: models as files for other runtimes, and files of others as models."""
