"""The HTTP interface of a model as an OpenAPI description."""

from __future__ import annotations

from typing import Any

from ganglion import config
from ganglion.images.decoding import FORMATS
from ganglion.serve.interface import Interface, Tensor

REFUSALS = {
    "400": "The body is not JSON.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The body is neither JSON nor a picture that the model takes.",
    "422": "The rows or the picture are not what the model takes.",
    "429": "Too many requests a second; Retry-After says when to ask again.",
    "503": "Too much to do, or shutting down; Retry-After says when to ask again.",
}
_JSON = "application/json"


def image_types() -> list[str]:
    """Return the media types of pictures that are read."""
    return [f"image/{name.lower()}" for name in FORMATS]


def description(interface: Interface) -> dict[str, Any]:
    """Return the description of the entire interface."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": interface.name,
            "version": config.VERSION,
            "description": "A model served by Ganglion.",
        },
        "paths": {
            "/predict": {"post": _predict(interface)},
            "/model": {"get": _get("What the model takes and gives.")},
            "/health": {"get": _get("Whether the server answers.")},
            "/metrics": {"get": _get("Counters for Prometheus.", "text/plain")},
            "/openapi.json": {"get": _get("This description.")},
        },
        "components": {
            "schemas": {
                "Error": _object({"error": {"type": "string"}}, ["error"]),
                "Request": _request(interface),
                "Answer": _answer(interface),
            }
        },
    }


def _predict(interface: Interface) -> dict[str, Any]:
    content: dict[str, Any] = {_JSON: {"schema": _reference("Request")}}
    if interface.form is not None:
        content |= {name: {} for name in image_types()}
    answers = {
        "200": {
            "description": "What the model says, a row an answer.",
            "content": {_JSON: {"schema": _reference("Answer")}},
        }
    }
    errors = {
        status: {
            "description": text,
            "content": {_JSON: {"schema": _reference("Error")}},
        }
        for status, text in REFUSALS.items()
    }
    return {
        "summary": "Ask the model about rows, or about a picture.",
        "operationId": "predict",
        "requestBody": {"required": True, "content": content},
        "responses": answers | errors,
    }


def _get(summary: str, kind: str = _JSON) -> dict[str, Any]:
    answer = {"description": summary, "content": {kind: {}}}
    return {"summary": summary, "responses": {"200": answer}}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


def _request(interface: Interface) -> dict[str, Any]:
    if len(interface.inputs) == 1:
        row = _row(interface.inputs[0])
    else:
        named = {tensor.name: _row(tensor) for tensor in interface.inputs}
        row = _object(named, list(named))
    properties: dict[str, Any] = {
        "rows": {"type": "array", "minItems": 1, "items": row}
    }
    if interface.maps:
        about = "Whether to answer with a class activation map for each row, too."
        properties["maps"] = {"type": "boolean", "description": about}
    return _object(properties, ["rows"])


def _row(tensor: Tensor) -> dict[str, Any]:
    """Return the shape of a row; its numbers may also be a flat list."""
    if tensor.is_text:
        return {"type": "string"}
    nested = _nested(tensor.shape, tensor.dtype)
    if len(tensor.shape) < 2 or tensor.size is None:
        return nested
    return {"anyOf": [nested, _nested((tensor.size,), tensor.dtype)]}


def _nested(shape: tuple[int | None, ...], dtype: str) -> dict[str, Any]:
    is_whole = dtype.startswith(("int", "uint"))
    schema: dict[str, Any] = {"type": "integer" if is_whole else "number"}
    for side in reversed(shape):
        schema = {"type": "array", "items": schema}
        if side is not None:
            schema |= {"minItems": side, "maxItems": side}
    return schema


def _answer(interface: Interface) -> dict[str, Any]:
    if interface.classes:
        count = len(interface.classes)
        name = {"type": "string", "enum": list(interface.classes)}
        properties = {
            "classes": {"type": "array", "items": name},
            "probabilities": _nested((None, count), "float32"),
        }
        required = list(properties)
        if interface.maps:
            properties["maps"] = _nested((None, None, None), "float32")
        return _object(properties, required)
    outputs = [_nested(tensor.shape, tensor.dtype) for tensor in interface.outputs]
    row: dict[str, Any] = outputs[0]
    if len(outputs) > 1:
        names = [tensor.name for tensor in interface.outputs]
        row = _object(dict(zip(names, outputs, strict=True)), names)
    return _object({"outputs": {"type": "array", "items": row}}, ["outputs"])
