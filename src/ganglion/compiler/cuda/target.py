"""The compilation target: the properties of a GPU, and the tuning of its kernels."""

from __future__ import annotations

from dataclasses import dataclass

from ganglion.system.records import record

TENSOR_CORES = 80  # compute capability from which tf32 and bf16 exist
# Kilobytes of shared memory per block and per multiprocessor, if there is no driver.
_SHARED = {75: (64, 64), 80: (163, 164), 87: (163, 164)} | dict.fromkeys(
    (90, 100, 103), (227, 228)
)
_LEAST_SHARED = (99, 100)


@dataclass(frozen=True)
class GpuSpec:
    """A GPU as the compiler sees it; the driver fills in what it reports.

    >>> GpuSpec(80).shared_per_block // 1024
    163
    """

    capability: int = 90  # 90 is compute capability 9.0
    precision: str = "tf32"  # the one asked for; products have that of `products`
    processors: int = 132  # streaming multiprocessors: those of an H100 or H200
    shared_per_block: int = 0  # bytes; by default, those of its capability
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
        """The shared memory of a block when two run on a multiprocessor."""
        return self.shared_per_block // 2 - 1024

    @property
    def products(self) -> str:
        """The precision of products: float32 where there are no tensor cores."""
        return self.precision if self.capability >= TENSOR_CORES else "float32"

    @property
    def bf16(self) -> bool:
        """Whether products multiply bfloat16."""
        return self.products == "bf16"

    @property
    def threads(self) -> int:
        """How many threads run at once, at half of a multiprocessor's maximum."""
        return self.processors * 1024

    def resident_blocks(self, shared: int) -> int:
        """Return how many blocks with this shared memory a multiprocessor runs: 1 or 2.

        >>> GpuSpec().resident_blocks(100 * 1024), GpuSpec().resident_blocks(120 * 1024)
        (2, 1)
        """
        return min(max(self.shared_per_processor // (shared + 1024), 1), 2)


@record(eq=False)
class GpuTuning:
    """Measured thresholds and costs, named for what they decide."""

    # Launches
    one_block_elements: int = 2048  # of a loop that a single block computes as fast
    busy_threads: int = 256  # of a multiprocessor, before each computes a vector
    unfused_loop_elements: int = 1 << 16  # of a loop for which a launch is cheap
    own_launch_elements: int = 1 << 20  # of a loop that fills a GPU alone
    longest_partition: int = 24  # fused kernels
    # The hardware would pack row-wise blocks onto idle multiprocessors: they reserve
    # this fraction of the shared memory, so that few of them fit.
    row_wise_share: int = 3
    prefetch_blocks_beside_rows: int = 64
    elements_per_block_of_many: int = 4096  # of loops, where there are many models

    # Resident steps: those that a single block runs in a loop
    resident_products: int = 1 << 20  # multiplications
    resident_elements: int = 1 << 18  # of all loops
    resident_thin: int = 2  # rows or columns of a product that becomes a loop
    resident_scratch: int = 24 * 1024  # bytes of shared memory for reductions

    # Epilogues
    most_epilogues: int = 8
    most_stored: int = 16  # values of a loop: more would spill registers
    most_stored_of_long: int = 6  # ... of a long reduction
    long_reduction: int = 1 << 18  # elements
    most_column_sums: int = 2
    most_sum_columns: int = 256  # of a sum within a block
    fewest_summed: int = 1 << 17  # elements for which a column sum pays
    fewest_summed_per_block: int = 512
    summed_per_block: int = 4096  # elements of a map

    # Reductions
    several_results_elements: int = 1 << 18  # from which a thread has several results
    reduced_per_thread: int = 8  # elements for which another thread pays
    reduced_per_split: int = 8  # ... and another block

    # Row-wise fusion
    fewest_rows: int = 16
    most_rows: int = 1024
    most_row_wise_elements: int = 1 << 17
    most_short_rows: int = 1 << 16  # if they are short, `most_rows` does not apply
    shortest_row: int = 16  # elements
    short_row: int = 1024
    most_row_wise_products: int = 1 << 20  # multiplications of a product as a loop
    narrow_product: int = 16  # columns or inner length of a product that may be a loop
    fewest_row_wise_blocks: int = 32
    row_wise_elements_per_block: int = 1024
    most_staged_bytes: int = 48 * 1024  # of all arrays that a block stages
    staged_whole_bytes: int = 2048  # of an array that is always staged entirely
    most_staged_row: int = 2048  # elements

    # Operands and convolutions
    bf16_elements: int = 1 << 14  # of an array for which bfloat16 pays
    unrolled_window: int = 49  # elements of a window whose sum is unrolled
    window_sums_per_thread: int = 9
    fewest_depthwise_elements: int = 1 << 14
    fewest_depthwise_channels: int = 8
    most_depthwise_columns: int = 4
    most_wgrad_taps: int = 10  # whose sums a warp holds in registers
    channels_together: int = 32  # of an image, where windows overlap
    window_reuse: float = 1.5  # reads per element that count as overlapping windows

    # Tilings of products
    most_stages: int = 16
    most_sums_of_thread: int = 96  # accumulators that leave registers for operands
    most_sums_of_lone_thread: int = 160  # the same of a multiprocessor's only block
    split_k_length: int = 2048  # of the inner axis, for which split-K pays
    split_k_most_results: int = 1 << 20
    bandwidth: float = 36.0  # of L2 and global memory: bytes/ns per multiprocessor
    shared_bandwidth: int = 128  # bytes/cycle per multiprocessor
    clock: float = 1.75  # cycles/ns
    cache_line: int = 128  # bytes: shorter copies are slower
    latency: float = 900.0  # ns until the first byte of a load arrives


TUNING = GpuTuning()
