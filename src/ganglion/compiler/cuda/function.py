"""A kernel function assembled from partitions, side by side in its blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ganglion.compiler.cuda.epilogue import Root
from ganglion.compiler.cuda.launches import Priority
from ganglion.compiler.cuda.text import THREADS, Emitted, c_type, root
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.memory import rounded


@dataclass(frozen=True)
class RowStaging:
    """What the blocks of a row-wise partition have in shared memory.

    Of most arrays it is a block's own rows, given by the elements of a row. `private`
    arrays are known to the partition alone; `written_back` ones are copied to global
    memory, too. `staged` ones are computed by others and copied in at the start, as
    `whole` arrays are: before the previous launch has ended if they are `ready`.
    """

    rows: int  # of a block
    private: Mapping[Root, int]
    written_back: Sequence[Mapping[Root, int]]  # by each body
    staged: Mapping[Root, int]
    whole: Collection[Root]
    ready: Collection[Root]

    def size(self, buffer: Buffer) -> int:
        """Return how many elements of an array a block has, 0 for none."""
        if root(buffer) in self.whole:
            return buffer.size
        for known in (self.private, self.staged, *self.written_back):
            if root(buffer) in known:
                return self.rows * known[root(buffer)]
        return 0


@dataclass(frozen=True)
class PartitionText:
    """A partition as bodies of code, one after the other."""

    bodies: list[Emitted]
    blocks: int
    priority: Priority
    staging: RowStaging | None = None  # of a row-wise partition

    def order(self) -> tuple[bool, int, float, int]:
        """Sort what takes long to the front, and what nobody waits for to the end."""
        work = max(one.work for one in self.bodies)
        return self.blocks > 1, self.priority.value, -work, -self.blocks

    @cached_property
    def _layout(self) -> tuple[dict[Root, int], int]:
        """Where in shared memory arrays of a block are, and the end of them all."""
        found: dict[Root, int] = {}
        end = rounded(max(one.shared for one in self.bodies), 16)
        for buffer in (b for one in self.bodies for b in one.buffers):
            size = self.staging.size(buffer) if self.staging else 0
            if size and root(buffer) not in found:
                found[root(buffer)] = end
                end += rounded(size * buffer.dtype.itemsize, 16)
        return found, end

    @property
    def shared(self) -> int:
        """The shared memory of a block."""
        return self._layout[1]

    def near_place(self, buffer: Buffer) -> str:
        """Return where a block has an array, "" if it has none of it."""
        at = self._layout[0].get(root(buffer))
        kind = c_type(buffer.dtype)
        return "" if at is None else f"({kind}*)(shared_bytes + {at})"

    def address(self, buffer: Buffer) -> str:
        """Return where all of an array would be, if a block has some of it, or ""."""
        place = self.near_place(buffer)
        if not place or self.staging is None or root(buffer) in self.staging.whole:
            return place
        return f"{place} - (BLOCK_OF_PARTITION) * {self.staging.size(buffer)}"


class Function:
    """A kernel function that is put together from partitions of bodies."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._buffers: list[Buffer] = []
        self._places: dict[Root, int] = {}
        self._partitions: list[tuple[int, list[str]]] = []
        self._scratch = 0

    def add(self, partition: PartitionText) -> None:
        """Add a partition to the right of those that are there."""
        staging = partition.staging
        lines = [] if partition.bodies[0].waits else ["start_after_others();"]
        if staging:
            lines = self._stage(partition, staging, lines)
        block = "BLOCK_OF_PARTITION"
        which = f"({block}) * {staging.rows}" if staging else block
        for number, body in enumerate(partition.bodies):
            if number:
                lines.append("BARRIER;")
            if number and staging:
                lines += self._write_back(partition, staging, number - 1)
            name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
            given = [
                partition.address(one) or f"a{self._argument(one)}"
                for one in body.buffers
            ]
            blocks = [] if staging else [str(partition.blocks)]
            lines.append(f"NAME_{name}({', '.join([which, *blocks, *given])});")
        self._partitions.append((partition.blocks, lines))

    def _stage(
        self, partition: PartitionText, staging: RowStaging, start: list[str]
    ) -> list[str]:
        """Return how a block starts, and copies what it needs of arrays."""
        early, then = list[str](), list[str]()
        buffers = {root(b): b for body in partition.bodies for b in body.buffers}
        for key, buffer in buffers.items():
            if key in staging.whole or key in staging.staged:
                size, far = staging.size(buffer), f"a{self._argument(buffer)}"
                if key not in staging.whole:
                    far += f" + (BLOCK_OF_PARTITION) * {size}"
                place = partition.near_place(buffer)
                copies = early if key in staging.ready else then
                copies.append(f"bring_near<{size}>({place}, {far});")
        return [*early, *start, *then, *["all_near();"] * bool(early or then)]

    def _write_back(
        self, partition: PartitionText, staging: RowStaging, number: int
    ) -> Iterator[str]:
        """Yield how others are shown what a body has made."""
        for buffer in partition.bodies[number].buffers:
            if root(buffer) in staging.written_back[number]:
                size = staging.size(buffer)
                far = f"a{self._argument(buffer)} + (BLOCK_OF_PARTITION) * {size}"
                yield f"show_others<{size}>({far}, {partition.near_place(buffer)});"

    def _argument(self, buffer: Buffer) -> int:
        key = root(buffer)
        if buffer.kind == "scratch":  # never shared, whatever it is called
            self._scratch += 1
            key = ("scratch", f"#{self._scratch}")
        if key not in self._places:
            self._places[key] = len(self._buffers)
            self._buffers.append(buffer)
        return self._places[key]

    def text(self, pair: bool) -> tuple[str, list[Buffer]]:
        """Return the function, called NAME, and what it is given.

        With `pair`, two blocks find room on a processor, which bounds their registers.
        """
        lines = []
        for text, name in self._bodies.items():
            lines.append(text.replace("BODY_SHAPE", f"NAME_{name}_shape"))
            lines[-1] = lines[-1].replace("BODY", f"NAME_{name}")
        given = ", ".join(
            f"{c_type(one.dtype)}* a{i}" for i, one in enumerate(self._buffers)
        )
        lines.append(
            f'extern "C" __global__ void __launch_bounds__({THREADS}{", 2" * pair}) '
            f"NAME({given}) {{"
        )
        start = 0
        for number, (blocks, calls) in enumerate(self._partitions):
            last = number == len(self._partitions) - 1
            head = "" if last else f"if (BLOCK < {start + blocks}) "
            lines.append(f"  {head}{{")
            at = f"BLOCK - {start}" if start else "BLOCK"
            lines += [f"    {one.replace('BLOCK_OF_PARTITION', at)}" for one in calls]
            lines.append("  }" if last else "  } else")
            start += blocks
        return "\n".join([*lines, "}", ""]), self._buffers
