"""Convolutions of volumes as those of images, by Winograd's method.

A slice of the result is a convolution of an image whose channels are those of as many
slices as the kernel is deep. They are copied side by side, once for a convolution and
the gradient of its weights.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ganglion.compiler.ir.arrays import concat, pad, reverse, slice_
from ganglion.compiler.ir.contraction import conv, conv_kernel
from ganglion.compiler.ir.graph import Graph, Node, Value, rewritten
from ganglion.compiler.ir.shaping import reshape, transpose
from ganglion.compiler.plan.passes.one_row import OPS, suits_image

Pair = tuple[int, int]


def in_depth(node: Node) -> bool:
    """Return whether a node is a convolution of volumes, or a gradient of one.

    All slices meet all taps of its depth.
    """
    if node.op not in OPS or len(node.attrs["strides"]) != 3:
        return False
    step, apart = node.attrs["strides"][0], node.attrs["dilation"][0]
    return step == apart == node.attrs["groups"] == 1 and node.size > 0


def as_slices(graph: Graph) -> Graph:
    """Return a graph whose volumes are images where those take less to convolve."""
    stacked = cache(_stacked)

    def rule(_: Node, new: Node) -> Value:
        if not in_depth(new):
            return new
        left, right = new.inputs
        depth, before_and_after = _depth(new)
        if min(before_and_after) < 0:
            return new
        images = stacked(left, depth, before_and_after)
        image = new.op(images, _of_slices(new, right), **_of_images(new))
        return _of_volumes(new, image, depth) if suits_image(image) else new

    return rewritten(graph, rule, OPS)


def _depth(node: Node) -> tuple[int, Pair]:
    """Return how deep the kernel is, and the slices of zeros around what it meets."""
    before, after = node.attrs["pairs"][0]
    if node.op is conv_kernel:
        return node.attrs["kernel"][0], (before, after)
    depth = node.inputs[1].shape[0]
    if node.op is conv:
        return depth, (before, after)
    return depth, (depth - 1 - before, depth - 1 - after)


def _stacked(volumes: Value, depth: int, around: Pair) -> Value:
    """Return an image for each slice: the channels of as many slices as the depth."""
    if max(around) > 0:
        none, zeros = (0, 0), (0,) * 5
        pairs = (none, around, none, none, none)
        volumes = pad(volumes, pairs=pairs, interior=zeros, value=0.0)
    count, size, *rest, channels = volumes.shape
    slices = size - depth + 1
    parts = [
        slice_(
            volumes,
            starts=(0, first, 0, 0, 0),
            stops=(count, first + slices, *rest, channels),
            steps=(1,) * 5,
        )
        for first in range(depth)
    ]
    images = concat(*parts, axis=4)
    return reshape(images, shape=(count * slices, *rest, depth * channels))


def _of_slices(node: Node, right: Value) -> Value:
    """Return the kernel, or the gradients, that meet the images of slices."""
    depth, *rest, into, out = right.shape
    if node.op is conv_kernel:  # gradients: volumes, slices, rows, columns, channels
        return reshape(right, shape=(depth * rest[0], rest[1], into, out))
    if node.op is conv:
        kernel = transpose(right, axes=(1, 2, 0, 3, 4))
        return reshape(kernel, shape=(*rest, depth * into, out))
    # The last tap meets the first slice.
    kernel = transpose(reverse(right, axes=(0,)), axes=(1, 2, 3, 0, 4))
    return reshape(kernel, shape=(*rest, into, depth * out))


def _of_images(node: Node) -> dict[str, Any]:
    """Return the attributes of a node without its depth."""
    return {
        name: value[1:] if isinstance(value, tuple) else value
        for name, value in node.attrs.items()
    }


def _of_volumes(node: Node, image: Value, depth: int) -> Value:
    """Return what a node stands for, from the same of images."""
    if node.op is not conv_kernel:
        return reshape(image, shape=node.shape)
    taps = reshape(image, shape=(*image.shape[:2], depth, *node.shape[3:]))
    return transpose(taps, axes=(2, 0, 1, 3, 4))
