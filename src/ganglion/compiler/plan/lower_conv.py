"""Lowering of convolutions, and of their gradients to images and kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan import lower_winograd
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    Contract,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    row_major,
)
from ganglion.compiler.plan.lower_copies import fill_border, padded_images
from ganglion.compiler.plan.lowering import Lowering, Pairs, contiguous, thread_split
from ganglion.compiler.plan.phases import Phase, phases


def lower_conv(low: Lowering, node: Node) -> None:
    """Emit a convolution: by Winograd's method where that pays, else directly."""
    x, w = node.inputs
    attrs = node.attrs
    kernel = View.of(low.store(w))
    if lower_winograd.chosen(low, node, w.shape[:-2], x.shape, node.shape):
        lower_winograd.lower_conv(low, node, kernel)
        return
    if low.target.few_channels_by_taps and _has_few_channels(w.shape, attrs):
        _conv_by_taps(low, node, kernel)
        return
    images = padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    target = low.allocate(node)
    _emit_conv(low, "conv", images, kernel, w.shape, target, node.shape, attrs)


# When a convolution becomes a product whose columns are its taps
FEW_CHANNELS = 4  # of its outputs, which leave most of a vector empty
MANY_CHANNELS = 16  # of its inputs, which make the product worthwhile
FEWEST_COLUMNS = 9  # taps times output channels


def _has_few_channels(kernel: Shape, attrs: Mapping[str, Any]) -> bool:
    """Return whether a convolution would leave vectors of channels mostly empty."""
    *taps, into, out = kernel
    return (
        attrs["groups"] == max(attrs["strides"]) == 1
        and out <= FEW_CHANNELS
        and into >= MANY_CHANNELS
        and math.prod(taps) * out >= FEWEST_COLUMNS
        and _within_reach(taps, attrs)
    )


def _within_reach(taps: Sequence[int], attrs: Mapping[str, Any]) -> bool:
    """Return whether every window has a pixel: padding is narrower than the kernel."""
    reach = [(k - 1) * d for k, d in zip(taps, attrs["dilation"], strict=True)]
    return all(max(pair) <= n for pair, n in zip(attrs["pairs"], reach, strict=True))


def _conv_by_taps(low: Lowering, node: Node, kernel: View) -> None:
    """Emit the product of all pixels and taps, then the sum of each window's taps."""
    x, w = node.inputs
    *taps, _, out = w.shape
    pairs, dilation = node.attrs["pairs"], node.attrs["dilation"]
    by_channel = (len(taps), *range(len(taps)), len(taps) + 1)
    products = _products_of_taps(low, node, x, kernel, by_channel, pairs)
    steps = row_major((*taps, out))
    shifts = tuple(
        products.strides[i + 1] * dilation[i] + steps[i] for i in range(len(taps))
    )
    load = Load(node.dtype, View(products.buffer, (*products.strides[:-1], 1, *shifts)))
    target = View.of(low.allocate(node))
    low.emit(Loop.of("sum", (*node.shape, *taps), load, target, len(taps), "sum"))


def _products_of_taps(
    low: Lowering, node: Node, x: Value, kernel: View, order: Shape, pairs: Pairs
) -> View:
    """Return the products of all pixels and taps, padded with zeros.

    `order` is an order of the kernel's axes that begins with the pixels' channels.
    """
    w = node.inputs[1]
    channels, columns = x.shape[-1], w.size // x.shape[-1]
    images = padded_images(low, x, ((0, 0),) * len(pairs), (0,) * len(pairs))
    weights = contiguous(low, kernel, w.shape, order).buffer
    padded = tuple(
        n + lo + hi for n, (lo, hi) in zip(x.shape[1:-1], pairs, strict=True)
    )
    products = View.of(low.new((x.shape[0], *padded, columns), node.dtype))
    around = ((0, 0), *pairs, (0, 0))
    fill_border(low, products, (*x.shape[:-1], columns), around)
    inside = sum(
        lo * stride for (lo, _), stride in zip(around, products.strides, strict=True)
    )
    batch, *rows = (
        Axis(size, left, 0, to)
        for size, left, to in zip(
            x.shape[:-1], images.strides, products.strides, strict=False
        )
    )
    low.emit(
        Contract(
            node.op.name,
            (batch,),
            tuple(rows),
            (Axis(columns, 0, 1, 1),),
            (Axis(channels, images.strides[-1], columns),),
            images,
            View.of(weights),
            replace(products, offset=inside),
        )
    )
    return products


def _emit_conv(
    low: Lowering,
    name: str,
    images: View,
    kernel: View,
    kernel_shape: Shape,
    target: Buffer,
    out_shape: Shape,
    attrs: Mapping[str, Any],
) -> None:
    out = View(target, row_major(out_shape))
    spatial = range(1, len(out_shape) - 1)
    steps, dilation = attrs["strides"], attrs["dilation"]
    if kernel_shape[-1] == 1 and low.target.pixels_side_by_side and steps[-1] == 1:
        images = _pixels_side_by_side(low, images)
    rows = tuple(
        Axis(out_shape[i], images.strides[i] * steps[i - 1], 0, out.strides[i])
        for i in spatial
    )
    taps = tuple(
        Axis(
            kernel_shape[i - 1],
            images.strides[i] * dilation[i - 1],
            kernel.strides[i - 1],
        )
        for i in spatial
    )
    sizes = (out_shape[0], *kernel_shape[-2:], attrs["groups"])
    _emit_windows(low, name, images, kernel, rows, taps, out, sizes)


def _emit_windows(
    low: Lowering,
    name: str,
    images: View,
    kernel: View,
    rows: tuple[Axis, ...],
    taps: tuple[Axis, ...],
    out: View,
    sizes: tuple[int, int, int, int],
) -> None:
    """Emit the contraction of windows of images with a kernel.

    The sizes are: images, input channels of a group, output channels, groups.
    """
    count, per_in, filters, groups = sizes
    per_out = filters // groups
    batch: tuple[Axis, ...] = (Axis(count, images.strides[0], 0, out.strides[0]),)
    if per_in == 1 and groups > 1:
        _emit_depthwise(low, name, images, kernel, batch, rows, taps, out, per_out)
        return
    if groups > 1:
        batch += (Axis(groups, per_in, per_out, per_out),)
    inner = (*taps, Axis(per_in, images.strides[-1], kernel.strides[-2]))
    columns = (Axis(per_out, 0, 1, 1),)
    low.emit(Contract(name, batch, rows, columns, inner, images, kernel, out))


def _pixels_side_by_side(low: Lowering, images: View) -> View:
    """Copy images so that the pixels of a row are adjacent, and not the channels."""
    shape = images.buffer.shape
    if len(shape) != len(images.strides) or images.strides != row_major(shape):
        return images
    *before, column, channel = range(len(shape))
    return contiguous(low, images, shape, (*before, channel, column))


def _emit_depthwise(
    low: Lowering,
    name: str,
    images: View,
    kernel: View,
    batch: tuple[Axis, ...],
    rows: tuple[Axis, ...],
    taps: tuple[Axis, ...],
    out: View,
    per_out: int,
) -> None:
    """Emit a depthwise convolution: a loop over channels that reduces the taps."""
    groups = out.buffer.shape[-1] // per_out
    channel = (Axis(groups, 1, per_out, per_out), Axis(per_out, 0, 1, 1))
    outer = (*batch, *rows, *channel)
    axes = (*outer, *taps)
    shape = tuple(axis.size for axis in axes)
    dtype = out.buffer.dtype
    left = Load(dtype, View(images.buffer, tuple(a.left for a in axes), images.offset))
    right = Load(
        dtype, View(kernel.buffer, tuple(a.right for a in axes), kernel.offset)
    )
    expr = Apply(dtype, "multiply", (left, right))
    view = View(out.buffer, tuple(size.out for size in outer), out.offset)
    low.emit(Loop.of(name, shape, expr, view, len(taps), "sum"))


def lower_conv_transpose(low: Lowering, node: Node) -> None:
    """Emit a transposed convolution, by the method that suits its shape."""
    dy, w = node.inputs
    attrs = node.attrs
    groups, kernel, dilation = attrs["groups"], w.shape[:-2], attrs["dilation"]
    spans = zip(kernel, dilation, attrs["pairs"], node.shape[1:-1], strict=True)
    pairs: list[tuple[int, int]] = []
    for axis, (k, d, (lo, _), n) in enumerate(spans):
        reach = (k - 1) * d
        spread = (dy.shape[axis + 1] - 1) * attrs["strides"][axis] + 1
        pairs.append((reach - lo, n + reach - spread - (reach - lo)))
    if any(n < 0 for pair in pairs for n in pair):
        _conv_transpose_by_adding(low, node)
        return
    strided = max(attrs["strides"]) > 1
    if not strided and lower_winograd.chosen(low, node, kernel, dy.shape, node.shape):
        lower_winograd.lower_conv_transpose(low, node, tuple(pairs))
        return
    if low.target.few_channels_by_taps and _spreads_to_few_channels(w.shape, attrs):
        _conv_transpose_by_taps(low, node)
        return
    transposed, shape = _transposed_kernel(low, w, groups)
    if low.target.strides_by_phase and shape[-1] > 1 and _has_phases(attrs):
        _conv_transpose_by_phase(low, node, transposed, shape)
        return
    interior = tuple(s - 1 for s in attrs["strides"])
    images = padded_images(low, dy, tuple(pairs), interior)
    target = low.allocate(node)
    once = {**attrs, "strides": (1,) * len(kernel)}
    _emit_conv(
        low, "conv_transpose", images, transposed, shape, target, node.shape, once
    )


def _has_phases(attrs: Mapping[str, Any]) -> bool:
    return max(attrs["strides"]) > 1 and max(attrs["dilation"]) == 1


def phases_of(node: Node) -> list[list[Phase]]:
    """Return the phases of a transposed convolution's outputs, for each axis."""
    attrs, taps = node.attrs, node.inputs[1].shape[:-2]
    edges = [edge for edge, _ in attrs["pairs"]]
    sizes = zip(attrs["strides"], edges, taps, node.shape[1:-1], strict=True)
    return [phases(*axis) for axis in sizes]


def _spreads_to_few_channels(kernel: Shape, attrs: Mapping[str, Any]) -> bool:
    """Return whether a transposed convolution would leave vectors mostly empty."""
    *taps, out, into = kernel
    return (
        attrs["groups"] == 1
        and max(attrs["dilation"]) == 1
        and out <= FEW_CHANNELS
        and into >= MANY_CHANNELS
        and math.prod(taps) * out >= FEWEST_COLUMNS
    )


def _conv_transpose_by_taps(low: Lowering, node: Node) -> None:
    """Emit the product of all pixels and taps, then the sums of each phase's taps."""
    dy, w = node.inputs
    every, taps = phases_of(node), w.shape[:-2]
    pairs = tuple(
        (
            max(0, *(-phase.before for phase in own), 0),
            max(0, *(phase.after - size for phase in own), 0),
        )
        for own, size in zip(every, dy.shape[1:-1], strict=True)
    )
    by_channel = (len(taps) + 1, *range(len(taps)), len(taps))
    kernel = View.of(low.store(w))
    products = _products_of_taps(low, node, dy, kernel, by_channel, pairs)
    out = View.of(low.allocate(node))
    if any(not phase.taps for own in every for phase in own):  # they stay zero
        low.emit(Loop.of("fill", node.shape, Literal(node.dtype, 0.0), out))
    steps = row_major((*taps, w.shape[-2]))
    for own in itertools.product(*every):
        if not all(phase.taps for phase in own):
            continue
        start, to, pixels, places, shifts = 0, out.offset, [], [], []
        for i, phase in enumerate(own):
            pixel, place = products.strides[i + 1], out.strides[i + 1]
            start += (pairs[i][0] + phase.begin) * pixel + phase.first * steps[i]
            to += phase.offset * place
            pixels.append(pixel)
            places.append(place * phase.stride)
            shifts.append(phase.stride * steps[i] - pixel)
        strides = (products.strides[0], *pixels, 1, *shifts)
        load = Load(node.dtype, View(products.buffer, strides, start))
        view = View(out.buffer, (out.strides[0], *places, 1), to)
        counts = (phase.count for phase in own)
        sums = (phase.taps for phase in own)
        shape = (node.shape[0], *counts, node.shape[-1], *sums)
        low.emit(Loop.of("sum", shape, load, view, len(taps), "sum"))


def _conv_transpose_by_phase(
    low: Lowering, node: Node, kernel: View, shape: Shape
) -> None:
    """Emit a convolution for each phase of the outputs, by the method that suits it."""
    dy, every = node.inputs[0], phases_of(node)
    out = View.of(low.allocate(node))
    if any(not phase.taps for own in every for phase in own):  # they stay zero
        low.emit(Loop.of("fill", node.shape, Literal(node.dtype, 0.0), out))
    plain = []
    for own in itertools.product(*every):
        if not all(phase.taps for phase in own):
            continue
        if lower_winograd.chosen_for_phase(low, node, own):
            lower_winograd.lower_phase(low, node, own, kernel, shape, out)
        else:
            plain.append(own)
    if not plain:
        return
    pairs = tuple(
        (
            max(0, *(-phase.before for phase in own)),
            max(0, *(phase.after - size for phase in own)),
        )
        for own, size in zip(zip(*plain, strict=True), dy.shape[1:-1], strict=True)
    )
    images = padded_images(low, dy, pairs, (0,) * len(pairs))
    sizes = (node.shape[0], *shape[-2:], node.attrs["groups"])
    for own in plain:
        rows, taps = [], []
        left, right, to = images.offset, kernel.offset, out.offset
        for i, phase in enumerate(own):
            pixel, tap = images.strides[i + 1], kernel.strides[i]
            place = out.strides[i + 1]
            rows.append(Axis(phase.count, pixel, 0, place * phase.stride))
            taps.append(Axis(phase.taps, pixel, tap * phase.stride))
            left += (phase.before + pairs[i][0]) * pixel
            right += (shape[i] - 1 - phase.last) * tap
            to += phase.offset * place
        views = (replace(images, offset=left), replace(kernel, offset=right))
        target = replace(out, offset=to)
        _emit_windows(
            low, "conv_transpose", *views, tuple(rows), tuple(taps), target, sizes
        )


def _transposed_kernel(low: Lowering, w: Value, groups: int) -> tuple[View, Shape]:
    """Return a kernel with its taps flipped and its channels swapped in each group."""
    view = View.of(low.store(w))
    taps = len(w.shape) - 2
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    # (taps..., out within group, group, in): contiguous in the new outputs.
    sizes = (*w.shape[:-2], per_out, groups, per_in)

    def packed() -> Buffer:
        flipped = tuple(-s for s in view.strides[:taps])
        last = ((n - 1) * s for n, s in zip(w.shape[:-2], view.strides, strict=False))
        strides = (*flipped, 1, per_out, view.strides[-2])
        target = low.new(sizes, w.dtype)
        load = Load(w.dtype, View(view.buffer, strides, sum(last)))
        low.emit(Loop.of("pack", sizes, load, View.of(target)))
        return target

    target = low.once(("transposed kernel", view, groups), packed)
    shape = (*w.shape[:-2], per_out, groups * per_in)
    return View(target, row_major(shape)), shape


def _conv_transpose_by_adding(low: Lowering, node: Node) -> None:
    """Emit a loop that adds each product to its output: for very wide padding."""
    dy, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    spans = zip(node.shape[1:-1], attrs["pairs"], strict=True)
    full = tuple(n + lo + hi for n, (lo, hi) in spans)
    padded = low.new((node.shape[0], *full, node.shape[-1]), node.dtype, "pad")
    images = View.of(padded)
    low.emit(Loop.of("fill", padded.shape, Literal(node.dtype, 0.0), images))
    grads, kernel = View.of(low.store(dy)), View.of(low.store(w))
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    axes = [Axis(dy.shape[0], grads.strides[0], 0, images.strides[0])]
    for i, k in enumerate(w.shape[:-2]):
        out = images.strides[i + 1]
        axes.append(
            Axis(dy.shape[i + 1], grads.strides[i + 1], 0, out * attrs["strides"][i])
        )
        axes.append(Axis(k, 0, kernel.strides[i], out * attrs["dilation"][i]))
    axes.append(Axis(groups, per_out, per_out, per_in))
    axes.append(Axis(per_out, 1, 1, 0))
    axes.append(Axis(per_in, 0, kernel.strides[-2], 1))
    dtype = node.dtype
    left = Load(dtype, View(grads.buffer, tuple(a.left for a in axes)))
    right = Load(dtype, View(kernel.buffer, tuple(a.right for a in axes)))
    expr = Apply(dtype, "multiply", (left, right))
    view = View(padded, tuple(a.out for a in axes))
    low.emit(
        Loop.of("conv_transpose", tuple(a.size for a in axes), expr, view, adds=True)
    )
    target = low.allocate(node)
    offset = sum(
        lo * s for (lo, _), s in zip(attrs["pairs"], images.strides[1:], strict=False)
    )
    inside = Load(dtype, View(padded, images.strides, offset))
    low.emit(Loop.of("copy", node.shape, inside, View.of(target)))


MAX_PARTIAL_SUMS = 1 << 20  # elements of a kernel's gradient, all parts together


def _parts_of_sum(low: Lowering, node: Node) -> int:
    """Return into how many parts the images of a kernel's gradient are split."""
    most = min(low.target.thread_splits, MAX_PARTIAL_SUMS // node.size)
    return thread_split(node.inputs[0].shape[0], max(1, most))


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Emit a kernel's gradient: partial sums of slices of the batch, and their sum."""
    x, dy = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    if lower_winograd.chosen(low, node, node.shape[:-2], x.shape, dy.shape):
        lower_winograd.lower_conv_kernel(low, node)
        return
    if low.target.few_channels_by_taps and _has_few_channels(node.shape, attrs):
        _conv_kernel_by_taps(low, node)
        return
    images = padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    grads = low.view(dy)
    if grads.strides[-1] != 1:
        grads = View.of(low.store(dy))
    per_in, per_out = x.shape[-1] // groups, dy.shape[-1] // groups
    out = row_major(node.shape)
    parts = _parts_of_sum(low, node)
    partial = low.new((parts, *node.shape) if parts > 1 else node.shape, node.dtype)
    spatial = range(len(node.shape) - 2)
    taps = tuple(
        Axis(node.shape[i], images.strides[i + 1] * attrs["dilation"][i], 0, out[i])
        for i in spatial
    )
    pixels = tuple(
        Axis(
            dy.shape[i + 1],
            images.strides[i + 1] * attrs["strides"][i],
            grads.strides[i + 1],
        )
        for i in spatial
    )
    each = x.shape[0] // parts
    batch: tuple[Axis, ...] = (
        Axis(parts, images.strides[0] * each, grads.strides[0] * each, node.size),
    )
    if groups > 1:
        batch += (Axis(groups, per_in, per_out, per_out),)
    inner = (Axis(each, images.strides[0], grads.strides[0]), *pixels)
    columns = (Axis(per_out, 0, 1, 1),)
    if per_in == 1 and groups > 1 and low.target.depthwise_sums:
        outer = (*batch, *columns)
        _emit_depthwise_kernel(low, images, grads, outer, inner, taps, partial)
    else:
        rows = (*taps, Axis(per_in, 1, 0, out[-2]))
        sums = View(partial, (node.size, *out))
        low.emit(
            Contract("conv_kernel", batch, rows, columns, inner, images, grads, sums)
        )
    if parts == 1:
        low.buffers[node] = partial
        return
    target = low.allocate(node)
    strides = row_major(partial.shape)
    total = Load(node.dtype, View(partial, (*strides[1:], strides[0])))
    view = View(target, out)
    low.emit(Loop.of("sum", (*node.shape, parts), total, view, 1, "sum"))


def _conv_kernel_by_taps(low: Lowering, node: Node) -> None:
    """Emit a kernel's gradient as a product whose columns are the images' channels."""
    x, dy = node.inputs
    *taps, channels, out = node.shape
    dilation, spatial = node.attrs["dilation"], range(len(node.shape) - 2)
    reach = [(taps[i] - 1) * dilation[i] for i in spatial]
    pairs = tuple(
        (reach[i] - lo, reach[i] - hi) for i, (lo, hi) in enumerate(node.attrs["pairs"])
    )
    grads = padded_images(low, dy, pairs, (0,) * len(taps))
    images = padded_images(low, x, ((0, 0),) * len(taps), (0,) * len(taps))
    parts = _parts_of_sum(low, node)
    each = x.shape[0] // parts
    partial = low.new((parts, *taps, out, channels), node.dtype)
    size, *to = row_major(partial.shape)
    batch = Axis(parts, grads.strides[0] * each, images.strides[0] * each, size)
    rows = (
        *(
            Axis(taps[i], -grads.strides[i + 1] * dilation[i], 0, to[i])
            for i in spatial
        ),
        Axis(out, grads.strides[-1], 0, to[-2]),
    )
    inner = (
        Axis(each, grads.strides[0], images.strides[0]),
        *(
            Axis(x.shape[i + 1], grads.strides[i + 1], images.strides[i + 1])
            for i in spatial
        ),
    )
    last = sum(reach[i] * grads.strides[i + 1] for i in spatial)
    left = replace(grads, offset=grads.offset + last)
    columns = (Axis(channels, 0, images.strides[-1], to[-1]),)
    sums = View.of(partial)
    low.emit(
        Contract("conv_kernel", (batch,), rows, columns, inner, left, images, sums)
    )
    strides = (*to[:-2], to[-1], to[-2], size)
    total = Load(node.dtype, View(partial, strides))
    target = View.of(low.allocate(node))
    low.emit(Loop.of("sum", (*node.shape, parts), total, target, 1, "sum"))


MOST_TAPS = 12  # summed in a single loop: as many vectors of sums fit into registers


def _emit_depthwise_kernel(
    low: Lowering,
    images: View,
    grads: View,
    outer: tuple[Axis, ...],
    inner: tuple[Axis, ...],
    taps: tuple[Axis, ...],
    target: Buffer,
) -> None:
    """Emit a depthwise kernel's gradient: each pass over the pixels sums some taps."""
    axes, dtype = (*outer, *inner), target.dtype
    shape = tuple(axis.size for axis in axes)
    strides = tuple(axis.left for axis in axes)
    gradient = View(grads.buffer, tuple(axis.right for axis in axes), grads.offset)
    right = Load(dtype, gradient)
    outputs = []
    for tap in itertools.product(*(range(axis.size) for axis in taps)):
        pairs = list(zip(tap, taps, strict=True))
        start = images.offset + sum(n * axis.left for n, axis in pairs)
        left = Load(dtype, View(images.buffer, strides, start))
        to = View(
            target,
            tuple(axis.out for axis in outer),
            sum(n * axis.out for n, axis in pairs),
        )
        outputs.append((Apply(dtype, "multiply", (left, right)), to))
    for first in range(0, len(outputs), MOST_TAPS):
        some = tuple(outputs[first : first + MOST_TAPS])
        low.emit(Loop("conv_kernel", shape, some, len(inner), "sum"))
