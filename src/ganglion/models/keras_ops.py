"""Ops of functional models in Keras' files: the Keras class of each op.

Keras writes a call such as `ops.mean(x, axis=1)` as an object of a class `Mean` that
was made with `axis` and called on `x`. This table says, for each op, which of its
arguments belong to the object; the rest belong to the call.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any, NamedTuple

from ganglion import activations, ops, random
from ganglion.config import closest
from ganglion.symbolic import Call, Function, infer

# Read off Keras 3.15: modules, then ops with the arguments of their constructors.
# Ops that call a function, such as `scan`, are missing: a file holds no code.
_TABLE = {
    "keras.src.ops.numpy": """
        abs absolute add all(axis,keepdims) allclose(rtol,atol,equal_nan) amax(axis,
        keepdims) amin(axis,keepdims) angle any(axis,keepdims) append(axis)
        arange(dtype) arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax(axis,
        keepdims) argmin(axis,keepdims) argpartition(kth,axis) argsort(axis)
        array(dtype) array_split(indices_or_sections,axis) average(axis)
        bincount(weights,minlength,sparse) bitwise_and bitwise_invert bitwise_left_shift
        bitwise_not bitwise_or bitwise_right_shift bitwise_xor broadcast_to(shape) cbrt
        ceil clip(x_min,x_max) concatenate(axis) conj conjugate copy corrcoef
        correlate(mode) cos cosh count_nonzero(axis) cross(axisa,axisb,axisc,axis)
        cumprod(axis,dtype) cumsum(axis,dtype) deg2rad diag(k) diagflat(k)
        diagonal(offset,axis1,axis2) diff(n,axis) digitize divide divide_no_nan dot
        dsplit(indices_or_sections) dstack einsum(subscripts) empty_like(dtype) equal
        exp exp2 expand_dims(axis) expm1 fabs flip(axis) fliplr flipud floor
        floor_divide fmax fmin fmod full(shape,dtype) full_like(dtype) gcd
        geomspace(num,endpoint,dtype,axis) getitem greater greater_equal heaviside
        histogram(bins,range) hsplit(indices_or_sections) hstack hypot i0 imag inner
        isclose(equal_nan) isfinite isin(assume_unique,invert) isinf isnan isneginf
        isposinf isreal kron lcm ldexp left_shift less less_equal linspace(num,endpoint,
        retstep,dtype,axis) log log10 log1p log2 logaddexp logaddexp2 logical_and
        logical_not logical_or logical_xor logspace(num,endpoint,base,dtype,axis) matmul
        max(axis,keepdims,initial) maximum mean(axis,keepdims) median(axis,keepdims)
        meshgrid(indexing) min(axis,keepdims,initial) minimum mod moveaxis(source,
        destination) multiply nan_to_num(nan,posinf,neginf) nanargmax(axis,keepdims)
        nanargmin(axis,keepdims) nancumprod(axis,dtype) nancumsum(axis,dtype)
        nanmax(axis,keepdims) nanmean(axis,keepdims) nanmedian(axis,keepdims)
        nanmin(axis,keepdims) nanpercentile(axis,method,keepdims) nanprod(axis,keepdims)
        nanquantile(axis,method,keepdims) nanstd(axis,keepdims) nansum(axis,keepdims)
        nanvar(axis,keepdims) ndim negative nextafter nonzero not_equal ones_like(dtype)
        outer pad(pad_width,mode) percentile(axis,method,keepdims) power prod(axis,
        keepdims,dtype) ptp(axis,keepdims) quantile(axis,method,keepdims) rad2deg ravel
        real reciprocal repeat(repeats,axis) reshape(newshape) right_shift roll(shift,
        axis) rot90(k,axes) round(decimals) searchsorted(side) select sign signbit sin
        sinc sinh size slogdet sort(axis) split(indices_or_sections,axis) sqrt square
        squeeze(axis) stack(axis) std(axis,keepdims) subtract sum(axis,keepdims)
        swapaxes(axis1,axis2) take(axis) take_along_axis(axis) tan tanh tensordot(axes)
        tile(repeats) trace(offset,axis1,axis2) transpose(axes) trapezoid(x,dx,axis)
        tril(k) triu(k) true_divide trunc unique(sorted,return_index,return_inverse,
        return_counts,axis,size,fill_value) unravel_index(shape) vander(N,increasing)
        var(axis,keepdims) vdot view(dtype) vsplit(indices_or_sections) vstack where
        zeros_like(dtype)""",
    "keras.src.ops.nn": """
        adaptive_average_pool(output_size,data_format) adaptive_max_pool(output_size,
        data_format) average_pool(pool_size,strides,padding,data_format)
        batch_normalization(axis,epsilon) binary_crossentropy(from_logits)
        categorical_crossentropy(from_logits,axis) celu(alpha) conv(strides,padding,
        data_format,dilation_rate) conv_transpose(strides,padding,output_padding,
        data_format,dilation_rate) ctc_decode(strategy,beam_width,top_paths,
        merge_repeated,mask_index) ctc_loss(mask_index) depth_to_space(block_size,
        data_format) depthwise_conv(strides,padding,data_format,dilation_rate)
        dot_product_attention(is_causal,flash_attention,attn_logits_soft_cap) elu(alpha)
        fold(output_size,kernel_size,dilation,padding,stride) gelu(approximate)
        glu(axis) hard_shrink(threshold) hard_sigmoid hard_silu hard_tanh
        layer_normalization(axis,epsilon,rms_scaling) leaky_relu(negative_slope)
        log_sigmoid log_softmax(axis) max_pool(pool_size,strides,padding,data_format)
        moments(axes,keepdims,synchronized) multi_hot(num_classes,axis,dtype,sparse)
        normalize(axis,order,epsilon) one_hot(num_classes,axis,dtype,sparse) polar
        psnr(max_val) relu relu6 rms_normalization(axis,epsilon) selu
        separable_conv(strides,padding,data_format,dilation_rate) sigmoid silu
        soft_shrink(threshold) softmax(axis) softplus softsign
        space_to_depth(block_size,data_format)
        sparse_categorical_crossentropy(from_logits,axis) sparse_plus sparse_sigmoid
        sparsemax(axis) squareplus(b) tanh_shrink threshold(threshold,default_value)
        unfold(kernel_size,dilation,padding,stride)""",
    "keras.src.ops.math": """
        cdist erf erfc erfinv extract_sequences(sequence_length,sequence_stride) fft
        fft2 ifft2 in_top_k(k) irfft(fft_length) istft(sequence_length,sequence_stride,
        fft_length,length,window,center) logdet logsumexp(axis,keepdims)
        rfft(fft_length) rsqrt segment_max(num_segments,sorted)
        segment_min(num_segments,sorted) segment_prod(num_segments,sorted)
        segment_sum(num_segments,sorted) stft(sequence_length,sequence_stride,
        fft_length,window,center) top_k(k,sorted) view_as_complex view_as_real""",
    "keras.src.ops.linalg": """
        cholesky(upper) cholesky_inverse(upper) det eig eigh inv lstsq(rcond) lu_factor
        matrix_rank(tol) norm(ord,axis,keepdims) pinv(rcond) qr(mode) solve
        solve_triangular(lower) svd(full_matrices,compute_uv)""",
    "keras.src.ops.core": """
        cast(dtype) convert_to_tensor(dtype,sparse,ragged) saturate_cast(dtype)
        scatter(shape) scatter_update(reduction) slice(shape) slice_update stop_gradient
        unstack(num,axis)""",
    "keras.src.ops.image": """
        affine_transform(interpolation,fill_mode,fill_value,data_format)
        crop_images(top_cropping,left_cropping,bottom_cropping,right_cropping,
        target_height,target_width,data_format) elastic_transform(alpha,sigma,
        interpolation,fill_mode,fill_value,seed,data_format) extract_patches(size,
        strides,dilation_rate,padding,data_format) gaussian_blur(kernel_size,sigma,
        data_format) hsv_to_rgb(data_format) map_coordinates(order,fill_mode,fill_value)
        pad_images(top_padding,left_padding,bottom_padding,right_padding,target_height,
        target_width,data_format) perspective_transform(interpolation,fill_value,
        data_format) resize(size,interpolation,antialias,crop_to_aspect_ratio,
        pad_to_aspect_ratio,fill_mode,fill_value,data_format)
        rgb_to_grayscale(data_format) rgb_to_hsv(data_format)
        scale_and_translate(spatial_dims,method,antialias) sobel_edges(data_format)
        ssim(max_val,filter_size,filter_sigma,k1,k2,data_format)""",
    "keras.src.ops.einops": """
        rearrange""",
}
# Classes that are not spelled as their ops are.
_CLASS_NAMES = {
    "allclose": "AllClose",
    "batch_normalization": "BatchNorm",
    "cdist": "CDist",
    "ctc_decode": "CTCDecode",
    "ctc_loss": "CTCLoss",
    "fft": "FFT",
    "fft2": "FFT2",
    "getitem": "GetItem",
    "hsv_to_rgb": "HSVToRGB",
    "ifft2": "IFFT2",
    "irfft": "IRFFT",
    "isin": "IsIn",
    "istft": "ISTFT",
    "layer_normalization": "LayerNorm",
    "psnr": "PSNR",
    "rfft": "RFFT",
    "rgb_to_grayscale": "RGBToGrayscale",
    "rgb_to_hsv": "RGBToHSV",
    "rms_normalization": "RMSNorm",
    "searchsorted": "SearchSorted",
    "ssim": "SSIM",
    "stft": "STFT",
    "svd": "SVD",
}
_ALIASES = {"abs": "absolute", "hard_swish": "hard_silu", "swish": "silu"}
_OUR_MODULES = {
    "ganglion.ops": ops,
    "ganglion.ops.image": ops.image,
    "ganglion.activations": activations,
    "ganglion.random": random,
}


class _Entry(NamedTuple):
    """An op of ours and its class in Keras."""

    function: Any
    module: str
    class_name: str
    made_with: tuple[str, ...]


@cache
def _entries() -> list[_Entry]:
    entries = []
    for module, text in _TABLE.items():
        for name, arguments in re.findall(r"(\w+)(?:\(([^)]*)\))?", text):
            made_with = tuple(re.findall(r"\w+", arguments))
            spelled = "".join(part.capitalize() for part in name.split("_"))
            class_name = _CLASS_NAMES.get(name, spelled)
            room = ops.image if module.endswith(".image") else ops
            function = getattr(room, name)
            entries.append(_Entry(function, module, class_name, made_with))
    return entries


@cache
def _by_function() -> dict[Any, _Entry]:
    known = {entry.function: entry for entry in _entries()}
    return known | {
        getattr(ops, alias): known[getattr(ops, name)]
        for alias, name in _ALIASES.items()
    }


def entry_of(call: Call) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Return the entry of an op in a file, and the arguments of its call."""
    function = call.operation.function
    known = _by_function().get(function)
    if known is None:
        return _own_entry(call), call.args, call.kwargs
    bound = inspect.signature(function).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    by_name = arguments.pop(_catch_all(function), {})
    config = {"name": call.operation.name}
    for name in known.made_with:
        config[name] = arguments.pop(name, None)
    entry = {
        "module": known.module,
        "class_name": known.class_name,
        "config": config,
        "registered_name": known.class_name,
    }
    return entry, _call_arguments(function, arguments), by_name


def _catch_all(function: Any) -> str:
    """Return the name of the parameter that takes any keyword, or nothing."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return parameter.name
    return ""


def _call_arguments(function: Any, arguments: dict[str, Any]) -> tuple[Any, ...]:
    """Return the arguments in order: some classes of Keras require all of them."""
    parameters = inspect.signature(function).parameters
    values: list[Any] = []
    for name, value in arguments.items():
        is_rest = parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        values.extend(value if is_rest else [value])
    return tuple(values)


def _own_entry(call: Call) -> dict[str, Any]:
    """Describe an op that Keras does not have: only Ganglion loads it."""
    name = call.operation.function.__name__
    for module, namespace in _OUR_MODULES.items():
        if getattr(namespace, name, None) is call.operation.function:
            return {
                "module": module,
                "class_name": name,
                "config": {"name": call.operation.name},
                "registered_name": None,
            }
    raise ValueError(
        f"The function {name!r} cannot be saved as a part of a functional model: write "
        "it as a Layer."
    )


class Operation:
    """An op read from a file, to be called on Keras tensors."""

    def __init__(self, name: str, function: Any, config: dict[str, Any]) -> None:
        self._operation = Function(function)
        self._operation.name = name
        self._config = config
        self._parameters = inspect.signature(function).parameters

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Record a call with the arguments of the op's constructor."""
        function = self._operation.function
        args, kwargs = self._in_our_order(args, {**kwargs, **self._config})
        if function is ops.getitem and isinstance(args[1], list):
            args = (args[0], tuple(args[1]))
        call = Call(self._operation, args, kwargs)
        return call.bind(infer(function, args, kwargs))

    def _in_our_order(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Insert the op's constructor arguments between the arguments of its call.

        `average(x, axis, weights)` is called there with `x, weights` alone.
        """
        rest, in_order = list(args), []
        for name, parameter in self._parameters.items():
            if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or not rest:
                break
            in_order.append(kwargs.pop(name) if name in kwargs else rest.pop(0))
        return (*in_order, *rest), kwargs


def is_operation(entry: dict[str, Any]) -> bool:
    """Return whether an entry of a functional model is an op, not a layer."""
    module = str(entry.get("module"))
    return module.startswith("keras.src.ops.") or module in _OUR_MODULES


def operation_from(entry: dict[str, Any], config: dict[str, Any]) -> Operation:
    """Make the op that an entry of a file describes."""
    module, class_name = entry["module"], str(entry["class_name"])
    name = str(config.pop("name", class_name))
    if module in _OUR_MODULES:
        function = getattr(_OUR_MODULES[module], class_name, None)
        if hasattr(function, "__wrapped__"):  # only what is marked as an op
            return Operation(name, function, config)
    for known in _entries():
        if (known.module, known.class_name) == (module, class_name):
            function = known.function
            parameters = inspect.signature(function).parameters
            lost = sorted(key for key in config.keys() - parameters if config[key])
            if lost:
                raise ValueError(
                    f"The op {class_name!r} has arguments that are not supported here: "
                    f"{', '.join(lost)}."
                )
            arguments = {key: v for key, v in config.items() if key in parameters}
            return Operation(name, function, arguments)
    names = [known.class_name for known in _entries()]
    raise ValueError(
        f"The model uses the op {class_name!r} ({module}), which Ganglion does not "
        f"have. {closest(class_name, names)}"
    )
