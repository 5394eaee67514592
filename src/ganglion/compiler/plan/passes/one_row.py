"""Convolutions of sequences as those of images with one row, by Winograd's method."""

from __future__ import annotations

import itertools

from ganglion.compiler.ir.contraction import conv, conv_kernel, conv_transpose
from ganglion.compiler.ir.graph import Graph, Node, Value, rewritten
from ganglion.compiler.ir.shaping import reshape
from ganglion.compiler.plan import lower_winograd
from ganglion.compiler.plan.lower_conv import phases_of

OPS = (conv, conv_transpose, conv_kernel)


def along_one_axis(node: Node) -> bool:
    """Return whether a node is a convolution of sequences, or a gradient of one."""
    return node.op in OPS and len(node.attrs["strides"]) == 1


def as_images(graph: Graph) -> Graph:
    """Return a graph whose sequences are images where those take less to convolve."""

    def rule(_: Node, new: Node) -> Value:
        if not along_one_axis(new):
            return new
        image = _as_image(new)
        return reshape(image, shape=new.shape) if suits_image(image) else new

    return rewritten(graph, rule, OPS)


def _as_image(node: Node) -> Node:
    """Return the same convolution of images with one row."""
    attrs = dict(node.attrs)
    attrs["pairs"] = ((0, 0), *attrs["pairs"])
    for name in ("strides", "dilation", "spatial", "kernel"):
        if name in attrs:
            attrs[name] = (1, *attrs[name])
    left, right = node.inputs
    count, size, channels = left.shape
    images = reshape(left, shape=(count, 1, size, channels))
    first, *rest = right.shape
    is_kernel = node.op is not conv_kernel
    shape = (1, first, *rest) if is_kernel else (first, 1, *rest)
    return node.op(images, reshape(right, shape=shape), **attrs)


def suits_image(node: Node) -> bool:
    """Return whether Winograd's method suits a convolution of images."""
    left, right = node.inputs
    if node.op is conv_kernel:
        return lower_winograd.suits(node, node.shape[:2], left.shape, right.shape)
    if node.op is conv_transpose and max(node.attrs["strides"]) > 1:
        every = itertools.product(*phases_of(node))
        return any(lower_winograd.suits_phase(node, own) for own in every)
    return lower_winograd.suits(node, right.shape[:2], left.shape, node.shape)
