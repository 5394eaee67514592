"""What code is compiled for: the numbers of a GPU, and the tuning of its kernels."""

from __future__ import annotations

from dataclasses import dataclass

TENSOR_CORES = 80  # compute capability from which tf32 and bf16 exist
# Kilobytes of shared memory of a block and of a processor, where no driver can say.
_SHARED = {75: (64, 64), 80: (163, 164), 87: (163, 164)} | dict.fromkeys(
    (90, 100, 103), (227, 228)
)
_LEAST_SHARED = (99, 100)


@dataclass(frozen=True)
class GpuSpec:
    """A GPU as the compiler sees it; its driver knows better than the defaults.

    >>> GpuSpec(80).shared_per_block // 1024
    163
    """

    capability: int = 90  # 90 is compute capability 9.0
    precision: str = "tf32"  # that is asked of products; see `products`
    processors: int = 132  # streaming multiprocessors: those of an H100 or H200
    shared_per_block: int = 0  # bytes; by default, what its capability has
    shared_per_processor: int = 0
    l2_bytes: int = 50 << 20

    def __post_init__(self) -> None:
        block, processor = _SHARED.get(self.capability, _LEAST_SHARED)
        if not self.shared_per_block:
            object.__setattr__(self, "shared_per_block", block * 1024)
        if not self.shared_per_processor:
            object.__setattr__(self, "shared_per_processor", processor * 1024)

    @property
    def half(self) -> int:
        """The shared memory of each of two blocks on one processor."""
        return self.shared_per_block // 2 - 1024

    @property
    def products(self) -> str:
        """The precision that products really have: exact without tensor cores."""
        return self.precision if self.capability >= TENSOR_CORES else "float32"

    @property
    def bf16(self) -> bool:
        """Whether products multiply bfloat16."""
        return self.products == "bf16"

    @property
    def threads(self) -> int:
        """How many threads run at once, at half of what a processor could have."""
        return self.processors * 1024

    def resident_blocks(self, shared: int) -> int:
        """Return how many blocks with so much shared memory a processor runs: 1 or 2.

        >>> GpuSpec().resident_blocks(100 * 1024), GpuSpec().resident_blocks(120 * 1024)
        (2, 1)
        """
        return min(max(self.shared_per_processor // (shared + 1024), 1), 2)


@dataclass
class GpuTuning:
    """Thresholds and costs that were measured, named for what they decide."""

    # Launches
    one_block_elements: int = 2048  # that one block computes as fast as many would
    busy_threads: int = 256  # of a processor, from which on each computes several
    unfused_loop_elements: int = 1 << 16  # beside which a launch costs nothing
    own_launch_elements: int = 1 << 20  # of a loop that needs a GPU for itself
    longest_partition: int = 24  # fused kernels
    # Row-wise blocks would gather on processors that happen to be idle: each takes so
    # large a share of their memory that they cannot.
    row_wise_share: int = 3
    prefetch_blocks_beside_rows: int = 64
    elements_per_block_of_many: int = 4096  # of loops, where there are many models

    # Steps that one block takes, in a launch of many steps
    resident_products: int = 1 << 20  # multiplications
    resident_elements: int = 1 << 18  # that loops go over
    resident_thin: int = 2  # rows or columns of a product that is rather a loop
    resident_scratch: int = 24 * 1024  # bytes of shared memory for sums over threads

    # Epilogues
    most_epilogues: int = 8
    most_stored: int = 16  # values of a loop: more would not stay in registers
    most_stored_of_long: int = 6  # ... of a long reduction
    long_reduction: int = 1 << 18  # elements
    most_column_sums: int = 2
    most_sum_columns: int = 256  # that are one block's
    fewest_summed: int = 1 << 17  # elements that are worth a column sum
    fewest_summed_per_block: int = 512
    summed_per_block: int = 4096  # elements of a map

    # Reductions
    several_results_elements: int = 1 << 18  # from which a thread has several results
    reduced_per_thread: int = 8  # elements that are worth another thread
    reduced_per_split: int = 8  # ... and another block

    # Row-wise fusion
    fewest_rows: int = 16
    most_rows: int = 1024
    most_row_wise_elements: int = 1 << 17
    most_short_rows: int = 1 << 16  # that may be beyond these
    shortest_row: int = 16  # elements
    short_row: int = 1024
    most_row_wise_products: int = 1 << 20  # multiplications of a product as a loop
    narrow_product: int = 16  # columns, or length of sums: as fast as a loop
    fewest_row_wise_blocks: int = 32
    row_wise_elements_per_block: int = 1024
    most_staged_bytes: int = 48 * 1024  # of arrays that are copied to a block
    staged_whole_bytes: int = 2048  # of an array that is copied as a whole anyway
    most_staged_row: int = 2048  # elements

    # Operands and convolutions
    bf16_elements: int = 1 << 14  # of an array that is worth storing in half the bytes
    unrolled_window: int = 49  # elements of a window whose sum is written out
    window_sums_per_thread: int = 9
    fewest_depthwise_elements: int = 1 << 14
    fewest_depthwise_channels: int = 8
    most_depthwise_columns: int = 4
    most_wgrad_taps: int = 10  # whose sums a warp holds in registers
    channels_together: int = 32  # of an image, where windows overlap
    window_reuse: float = 1.5  # reads of an element from which on windows overlap

    # Tilings of products
    most_stages: int = 16
    most_sums_of_thread: int = 96  # that leave registers for operands and addresses
    split_k_length: int = 2048  # of sums that are worth being split
    split_k_most_results: int = 1 << 20
    bandwidth: float = 36.0  # bytes a nanosecond that a processor gets from far
    shared_bandwidth: int = 128  # bytes a cycle that its shared memory gives
    clock: float = 1.75  # cycles a nanosecond
    cache_line: int = 128  # bytes: copies of less take longer
    latency: float = 900.0  # nanoseconds until the first byte comes


TUNING = GpuTuning()
