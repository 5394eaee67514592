"""Lowering rules: the table of all ops that are lowered to kernels of their own."""

from __future__ import annotations

from ganglion.compiler.ir import host
from ganglion.compiler.plan.host_call import lower_host_call
from ganglion.compiler.plan.lower_conv import (
    lower_conv,
    lower_conv_kernel,
    lower_conv_transpose,
)
from ganglion.compiler.plan.lower_copies import (
    lower_concat,
    lower_pad,
    lower_scatter_add,
)
from ganglion.compiler.plan.lower_pools import (
    lower_max_pool_back,
    lower_pool,
    lower_sum_pool_back,
)
from ganglion.compiler.plan.lower_scan import lower_scan
from ganglion.compiler.plan.lowering import (
    Rules,
    lower_argmax,
    lower_cumsum,
    lower_matmul,
    lower_reduce,
)

RULES: Rules = {
    "sum": lower_reduce,
    "max": lower_reduce,
    "argmax": lower_argmax,
    "cumsum": lower_cumsum,
    "pad": lower_pad,
    "concat": lower_concat,
    "scatter_add": lower_scatter_add,
    "scan": lower_scan,
    "matmul": lower_matmul,
    "conv": lower_conv,
    "conv_transpose": lower_conv_transpose,
    "conv_kernel": lower_conv_kernel,
    "max_pool": lower_pool,
    "sum_pool": lower_pool,
    "sum_pool_back": lower_sum_pool_back,
    "max_pool_back": lower_max_pool_back,
    host.KIND: lower_host_call,
}
