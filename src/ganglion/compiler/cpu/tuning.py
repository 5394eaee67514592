"""All constants of the CPU backend that were tuned by measurement.

They are the same on every machine, even those that stand for caches and registers: the
bits of a result must not depend on where its plan was built. Machines differ only in
what LLVM does (it splits vectors of 16 lanes for narrower registers), in the number of
threads, and in `features`: whether products pack columns, which changes no bit, and how
they multiply bfloat16, if that is requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ganglion.system.records import record


@record(eq=False, guarded=True)
class CpuTuning:
    """The tuning constants of the CPU backend; times are in nanoseconds."""

    # ---- registers and memory
    vector_width: int = 16  # lanes of a vector, of 4 bytes each
    accumulators: int = 28  # vectors that fit beside the operands in 32 registers
    tile_rows: int = 14  # at most, of a tile of accumulators
    tile_vectors: int = 4  # columns of vectors of a tile, at most
    chains: int = 2  # vectors of functions that are interleaved: a power of two
    light_epilogue: int = 8  # ops of an epilogue that is inlined on registers
    epilogue_columns: int = 16  # fewer would leave most lanes of an epilogue idle
    epilogue_product: int = 1 << 19  # multiplications: fewer do not repay its text
    copied_columns: int = 256  # fewer lie close enough together
    copied_rows: int = 64  # fewer do not repay the copy
    copied_panel: int = 4096  # elements: half of a first cache
    streamed_columns: int = 256  # of a product of one row: fewer have tiles
    streamed_piece: tuple[int, int] = (512, 2048)  # columns of a piece, least and most
    streamed_lines: int = 8  # of its matrix, that are read side by side
    streamed_vectors: int = 2  # of each of them, likewise
    stored_inner: int = 16  # inner indices: with more, storing takes less than reading
    ahead_columns: int = 64  # of a product that prefetches rows, at most
    ahead_bytes: int = 8192  # between a row and what is prefetched, at least
    dotted_columns: tuple[int, ...] = (1, 2, 4)  # of a product that adds along rows
    dotted_inner: int = 5  # its inner indices: fewer have tiles
    dotted_lines: int = 4  # that are read side by side
    dotted_piece: int = 64  # rows that a thread takes at a time
    small_product: int = 1 << 21  # multiplications: more have tiles made for them
    plain_product: int = 1 << 26  # likewise, of matrices with one axis of each kind
    blocked_inner: int = 2048  # inner size from which on products are blocked
    inner_block: int = 256  # indices of a block, and of a large product's
    prefetched_rows: int = 16  # of a block: distance of prefetches into the L1 cache
    prefetched_left: int = 512  # of a block: elements of an inner index, left, at most
    side_by_side_panels: int = 4  # of a block, that a thread takes at a time, at most
    halfway_vectors: int = 24  # between the transforms of a tile's columns and rows
    column_accumulators: int = 8  # vectors of column sums in a pass over the rows
    least_parameter: int = 16  # smaller sizes are constants in a loop's text
    small_loop: float = 50_000.0  # work: more repays a text that is made for its sizes
    long_axis: int = 128  # elements of a vectorized axis, for which it never pays
    lanes_worth_filling: int = 8  # by adjacent sums
    narrow_sum: int = 32  # elements that are summed in their own type
    line_bytes: int = 64  # of a cache
    prefetching_run: int = 32  # inner indices between prefetches for later, at most
    page_bytes: int = 4096  # hardware prefetchers stop at its end
    prefetched_stride: int = 1024  # bytes between the lines that a tile reads
    prefetched_pages: int = 16  # of a buffer: smaller ones stay in the cache

    # ---- large products, whose matrices are packed
    packed_bytes: int = 2**21  # of right matrices, at least
    packed_in_batch: int = 2**18  # of each of them
    packed_transposed: int = 2**18  # instead, of transposed ones, where copies gain
    fewest_packed_rows: int = 28
    packed_rows: int = 14  # of a tile
    packed_vectors: int = 2  # of a tile, of 16 float32
    packed_columns: int = 512  # of a block, at most: packed, they fit the second cache
    packed_block_rows: int = 256  # of a piece, at most
    packed_grain: int = 8  # strips of columns that a thread takes at a time, at least
    merged_rows: int = 1024  # at most, for which columns are packed once
    amx_rows: int = 32  # of a panel, where AMX multiplies: two of its tiles
    amx_columns: int = 1024  # of a block, likewise, without an epilogue
    amx_inner: int = 512  # indices of a block, likewise: bfloat16 takes half as much
    amx_panels: int = 4  # of rows that lie side by side, likewise, packed together
    packed_streams: int = 2  # arrays of an epilogue, at most: else a loop is faster
    packed_lines: int = 8  # of columns that are packed, side by side
    packed_ahead: int = 8  # rows that are prefetched while columns are packed

    # ---- cache blocking
    unfused_loop: int = 1 << 15  # points, from which on sharing a number does not pay
    slice_bytes: int = 256 * 1024  # of a buffer, unless there are enough slices
    enough_slices: int = 16  # to balance the load of several threads
    fewest_slices: int = 8
    block_lookahead: int = 60  # kernels

    # ---- gradients of max pooling, computed where they are read
    pool_readers: int = 4  # at most: each computes the maximum again
    pool_reader_taps: int = 4  # at most: more would spill registers

    # ---- zeros of the data
    worth_skipping: float = 0.75  # nonzeros: with a larger part, dense tiles are faster
    # Rows that share a list of nonzero indices. More rows have fewer zeros in common;
    # with fewer, loading the right operand is the bottleneck, the more so the shorter
    # its rows are.
    zero_group: int = 4
    thin_zero_group: int = 8
    thin_columns: int = 16  # at most, of a right operand with short rows
    listed_product: int = 1 << 17  # multiplications: fewer take as long as a list
    listed_inner: int = 16  # inner size below which a list costs more than it saves
    listed_columns: int = 4  # likewise
    listed_bits: int = 8  # inner indices in a word, likewise
    sampled_vectors: int = 4  # that are tested before all are
    sampled_elements: int = 16  # instead, where elements are not contiguous
    sampled_words: tuple[float, ...] = (0.3, 0.7)  # positions, seldom on a border

    # ---- threads
    loop_rows: int = 8  # of a group that a thread runs through all time steps, at most
    thread_splits: int = 32  # parts of a batch or a long sum, for any number of threads
    enough_pieces: int = 8  # of a contraction, for threads to share as they are
    many_threads: int = 16  # that fewer pieces are cut further for
    many_shares: int = 64  # of large products, for those: cores may differ in speed
    equal_share: float = 1.05  # of large products, in units of the smallest possible
    even_share: float = 1.25  # of the slowest of those, in units of an equal one
    map_grain: int = 64  # elements of a map over one axis that stay on one thread
    # The least cost of a barrier, including misses on other threads' results.
    barrier: float = 2_000.0
    crowded_barrier: float = 25_000.0  # if threads compete with other work for cores
    worth_sharing: float = 2_000.0  # work of a kernel: less stays on one thread
    bytes_alone: int = 32 * 1024  # of other kernels' results: less stays, likewise
    kernel_slices: int = 16  # of a kernel outside of segments, at least
    slices_of_thread: int = 4  # likewise: threads on busy cores take fewer of them
    worth_stealing: float = 100_000.0  # work of a run with dynamic slices
    worth_waking: float = 150_000.0  # work of all steps: waking threads costs as much
    worth_sharing_out: float = 50_000.0  # work of entire steps, for another thread
    own_cache: int = 1 << 20  # bytes of a core's L2 cache, in which such steps stay
    shared_time: float = 0.8  # estimated part of the time on one thread that still pays
    more_threads: float = 0.97  # of the time on half as many, likewise
    trials: int = 3  # of a number of threads, of which the median counts
    trial: float = 1_000_000.0  # estimated work of the steps of a trial
    hopeless: float = 1.6  # times the best estimate so far
    doubtful: float = 50_000.0  # work on one thread: estimates for several may be wrong
    try_again: float = 10.0  # seconds until trials are repeated
    spins: int = 40_000  # about a millisecond: waking a core may take 100 µs
    spins_crowded: int = 50  # a waiting thread keeps others from working
    crowded_load: float = 1.5  # per core; a pool alone causes a load of one
    claim_cores_again: float = 10.0  # seconds until cores are claimed again
    idle_pool: float = 10.0  # seconds without a run, after which a pool is closed


CPU = CpuTuning()  # looked up here at run time, so that tests can replace it

_accumulators: ContextVar[int] = ContextVar("accumulators", default=CPU.accumulators)


def accumulators() -> int:
    """Return how many vectors of 16 lanes a tile may accumulate in registers."""
    return _accumulators.get()


@contextmanager
def with_accumulators(count: int) -> Iterator[None]:
    """Emit for a machine with registers for so many vectors, as exports do."""
    token = _accumulators.set(count)
    try:
        yield
    finally:
        _accumulators.reset(token)
