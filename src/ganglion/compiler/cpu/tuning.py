"""What was tuned by measurement, in one table.

The numbers are the same on every machine, also those that stand for its caches and
registers: the bits of a result must not depend on where its plan was made. What differs
between machines is left to LLVM, which splits vectors of 16 lanes where the machine's
are narrower, to the number of threads, and to what `features` says: whether products
copy columns, which changes no bit, and by what they multiply bfloat16, if that is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class CpuTuning:
    """The tuning constants of the CPU backend; times are in nanoseconds."""

    # ---- registers and memory
    vector_width: int = 16  # lanes of a vector, of 4 bytes each
    accumulators: int = 28  # vectors that fit beside the operands in 32 registers
    tile_rows: int = 14  # at most, of a tile of accumulators
    tile_vectors: int = 4  # at most, side by side in a tile
    chains: int = 2  # vectors that functions are computed of at once: a power of two
    light_epilogue: int = 8  # ops of one that goes on in registers, without a call
    epilogue_columns: int = 16  # fewer would leave most lanes of an epilogue idle
    epilogue_product: int = 1 << 19  # multiplications: fewer do not repay its text
    copied_columns: int = 256  # fewer lie close enough together
    copied_rows: int = 64  # fewer do not repay the copy
    copied_panel: int = 4096  # elements: half of a first cache
    small_product: int = 1 << 21  # multiplications: more have tiles made for them
    plain_product: int = 1 << 26  # likewise, of matrices with one axis of each kind
    blocked_inner: int = 2048  # inner size from which products go block by block
    inner_block: int = (
        256  # of those, and of large ones: indices that stay in the cache
    )
    prefetched_rows: int = 16  # of those: how far ahead one comes into the first cache
    prefetched_left: int = 512  # of those: elements of an inner index, left, at most
    side_by_side_panels: int = 4  # of those: that a thread takes at once, at most
    halfway_vectors: int = 24  # between the transforms of a tile's columns and rows
    column_accumulators: int = 8  # vectors of column sums in one walk over the rows
    least_parameter: int = 16  # sizes below are constants of a loop's text
    small_loop: float = 50_000.0  # work: more repays a text made for its sizes
    long_axis: int = 128  # unless its vectors lie along so many elements
    lanes_worth_filling: int = 8  # by neighbouring sums
    narrow_sum: int = 32  # elements that are added up in their own type
    line_bytes: int = 64  # of a cache
    prefetching_run: int = 32  # inner indices at most between prefetches for later
    page_bytes: int = 4096  # beyond, processors do not prefetch by themselves
    prefetched_stride: int = 1024  # bytes from a line to the next that a tile reads
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
    packed_grain: int = 8  # strips of columns at least that a thread takes at once
    merged_rows: int = 1024  # at most, for which columns are packed once
    amx_rows: int = 32  # of a panel, where AMX multiplies: two of its tiles
    amx_columns: int = 1024  # of a block, likewise, if no epilogue goes on with them
    amx_inner: int = 512  # indices of a block, likewise: bfloat16 takes half as much
    amx_panels: int = 4  # of rows that lie side by side, likewise, packed together
    packed_streams: int = 2  # of an epilogue at most: a loop of its own walks faster
    packed_ahead: int = 8  # rows that are prefetched while columns are packed

    # ---- cache blocking
    unfused_loop: int = 1 << 15  # points: so many need more in common than a number
    slice_bytes: int = 256 * 1024  # of a buffer, unless there are enough slices
    enough_slices: int = 16  # for several threads to get about equal shares
    fewest_slices: int = 8
    block_lookahead: int = 60  # kernels

    # ---- gradients of max pooling, computed where they are read
    pool_readers: int = 4  # at most: each finds the largest element anew
    pool_reader_taps: int = 4  # at most: more would not stay in registers

    # ---- zeros of the data
    worth_skipping: float = 0.75  # part of nonzeros; with more, dense tiles are faster
    # Rows that share a list of indices at which not all are zero. More rows have fewer
    # zeros in common; with fewer, loading the right operand is the limit, and that
    # comes sooner where its rows are short.
    zero_group: int = 4
    thin_zero_group: int = 8
    thin_columns: int = 16  # at most, of a right operand with short rows
    listed_product: int = 1 << 17  # multiplications: fewer take as long as a list
    listed_inner: int = 16  # inner size below which a list costs more than it saves
    listed_columns: int = 4  # likewise
    listed_bits: int = 8  # inner indices in a word, likewise
    sampled_vectors: int = 4  # that are tested before all are
    sampled_elements: int = 16  # instead, where elements are not side by side
    sampled_words: tuple[float, ...] = (0.3, 0.7)  # parts of an image: seldom a frame

    # ---- threads
    loop_rows: int = 8  # at most, of a batch that a thread takes through time at once
    thread_splits: int = 32  # parts of a batch or a long sum, for any number of threads
    enough_pieces: int = 8  # of a contraction, for threads to share as they are
    many_threads: int = 16  # that fewer pieces are cut further for
    many_shares: int = 64  # of large products, for those: cores may differ in speed
    equal_share: float = 1.05  # of large products, in units of the smallest possible
    even_share: float = 1.25  # of the slowest of those, in units of an equal one
    map_grain: int = 64  # elements of a map over one axis that stay on one thread
    # What waiting for all threads costs at least: others' results are fetched, too.
    barrier: float = 2_000.0
    crowded_barrier: float = 25_000.0  # where other work keeps threads from their cores
    worth_sharing: float = 2_000.0  # work of a kernel: less stays on one thread
    bytes_alone: int = 32 * 1024  # of others' results that one thread reads, likewise
    kernel_slices: int = 16  # for threads to take, where cache blocking says nothing
    slices_of_thread: int = 4  # at least: cores that others use, too, take fewer
    worth_stealing: float = 100_000.0  # work of a run whose slices threads take in turn
    worth_waking: float = 150_000.0  # work of all steps: waking threads costs as much
    worth_sharing_out: float = 50_000.0  # work of whole steps, for one thread more
    own_cache: int = 1 << 20  # bytes of a core's second cache, in which such steps stay
    shared_time: float = 0.8  # estimated part of the time on one thread that still pays
    more_threads: float = 0.97  # of the time on half as many, likewise
    trials: int = 3  # of a number of threads, of which the median counts
    trial: float = 1_000_000.0  # work of the steps of a trial, by estimate
    hopeless: float = 1.6  # estimate, in units of that of the fastest so far
    doubtful: float = 50_000.0  # of one thread: estimates of others may be wrong
    try_again: float = 10.0  # seconds, after which other work may have come or gone
    spins: int = 40_000  # about a millisecond: waking a core may take 100 µs
    spins_crowded: int = 50  # a waiting thread keeps others from working
    crowded_load: float = 1.5  # per core; ours alone make a load of one at most
    claim_cores_again: float = 10.0  # seconds until cores are asked for again
    idle_pool: float = 10.0  # seconds without a run, after which they are given back


CPU = CpuTuning()  # what runs programs looks it up here each time: tests replace it

_accumulators: ContextVar[int] = ContextVar("accumulators", default=CPU.accumulators)


def accumulators() -> int:
    """Return how many vectors of 16 lanes a tile may add up in registers."""
    return _accumulators.get()


@contextmanager
def with_accumulators(count: int) -> Iterator[None]:
    """Emit for a machine whose registers hold so many; exports are for such, too."""
    token = _accumulators.set(count)
    try:
        yield
    finally:
        _accumulators.reset(token)
