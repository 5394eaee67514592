"""A kernel function put together from partitions, side by side in its blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ganglion.compiler.cuda.launches import Priority
from ganglion.compiler.cuda.text import THREADS, Emitted, c_type, fill
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.plan import rounded


@dataclass(frozen=True)
class RowStaging:
    """What blocks of row-wise fused kernels stage in shared memory.

    Mappings say how many elements of an array a row has: a block has its own rows.
    """

    rows: int  # of a block
    private: Mapping[BufferKey, int]  # only this partition writes and reads these
    written_back: Sequence[Mapping[BufferKey, int]]  # by each body, for others to read
    staged: Mapping[BufferKey, int]  # written by others, and copied at the start
    staged_whole: Collection[BufferKey]  # the same, all rows of them
    ready: Collection[BufferKey]  # before the launch: copied before others have ended

    def size(self, buffer: Buffer) -> int:
        """Return how many elements of an array a block has, 0 for none."""
        key = buffer.key
        if key in self.staged_whole:
            return buffer.size
        known = (self.private, self.staged, *self.written_back)
        return self.rows * next((sizes[key] for sizes in known if key in sizes), 0)


@dataclass(frozen=True)
class PartitionText:
    """A partition of a launch as bodies of code, one after the other."""

    bodies: list[Emitted]
    blocks: int
    priority: Priority
    staging: RowStaging | None = None  # of row-wise fused kernels

    def order(self) -> tuple[bool, int, float, int]:
        """Sort long partitions to the front, and deferred ones to the end."""
        work = max(body.work for body in self.bodies)
        return self.blocks > 1, self.priority.value, -work, -self.blocks

    @cached_property
    def buffers(self) -> dict[BufferKey, Buffer]:
        """The arrays of all bodies."""
        return {b.key: b for body in self.bodies for b in body.buffers}

    @cached_property
    def _layout(self) -> tuple[dict[BufferKey, int], int]:
        """The offsets of arrays in shared memory, and the end of them all."""
        offsets: dict[BufferKey, int] = {}
        end = rounded(max(body.shared for body in self.bodies), 16)
        for key, buffer in self.buffers.items():
            if size := self.staging.size(buffer) if self.staging else 0:
                offsets[key] = end
                end += rounded(size * buffer.dtype.itemsize, 16)
        return offsets, end

    @property
    def shared(self) -> int:
        """The shared memory of a block."""
        return self._layout[1]

    def staged(self, buffer: Buffer) -> str:
        """Return the address of a block's copy of an array, "" if it has none."""
        offset = self._layout[0].get(buffer.key)
        kind = c_type(buffer.dtype)
        return "" if offset is None else f"({kind}*)(shared_bytes + {offset})"


class Function:
    """The text of a kernel function, and the buffers that are its arguments."""

    def __init__(self, partitions: Iterable[PartitionText]) -> None:
        self.buffers: list[Buffer] = []
        self._bodies: dict[str, str] = {}
        self._arguments: dict[BufferKey, str] = {}
        self._scratch = 0
        self._partitions: list[tuple[int, list[str]]] = []
        start = 0
        for partition in partitions:
            block = f"BLOCK - {start}" if start else "BLOCK"
            start += partition.blocks
            self._partitions.append((start, self._calls(partition, block)))

    def named(self, pair: bool) -> tuple[str, str]:
        """Return the function's name, made from its text, and its text.

        With `pair`, two blocks find room on a processor, which bounds their registers.
        """
        lines = [
            fill(text, body=f"${{kernel}}_{name}")
            for text, name in self._bodies.items()
        ]
        arguments = ", ".join(
            f"{c_type(buffer.dtype)}* a{i}" for i, buffer in enumerate(self.buffers)
        )
        lines.append(
            f'extern "C" __global__ void __launch_bounds__({THREADS}{", 2" * pair}) '
            f"$kernel({arguments}) {{"
        )
        *others, (_, last) = self._partitions
        for end, calls in others:
            lines += [f"  if (BLOCK < {end}) {{", *calls, "  } else"]
        text = "\n".join([*lines, "  {", *last, "  }", "}", ""])
        digest = hashlib.sha256(fill(text, kernel="NAME").encode()).hexdigest()
        name = f"k{digest[:24]}"
        return name, fill(text, kernel=name)

    def _calls(self, partition: PartitionText, block: str) -> list[str]:
        """Return how a block of a partition calls its bodies."""
        staging = partition.staging
        lines = [] if partition.bodies[0].waits else ["start_after_others();"]
        if staging:
            lines = self._stage(partition, staging, block, lines)
        which = f"({block}) * {staging.rows}" if staging else block
        for number, body in enumerate(partition.bodies):
            if number:
                lines.append("BARRIER;")
                lines += self._write_back(partition, number - 1, block)
            name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
            arguments = [which] if staging else [which, str(partition.blocks)]
            arguments += [self._address(partition, b, block) for b in body.buffers]
            lines.append(f"${{kernel}}_{name}({', '.join(arguments)});")
        return [f"    {line}" for line in lines]

    def _stage(
        self, partition: PartitionText, staging: RowStaging, block: str, start: list
    ) -> list[str]:
        """Return how a block starts, and copies what it needs of arrays."""
        before, after = list[str](), list[str]()
        for key, buffer in partition.buffers.items():
            if key in staging.staged_whole or key in staging.staged:
                size, source = staging.size(buffer), self._argument(buffer)
                if key not in staging.staged_whole:
                    source += f" + ({block}) * {size}"
                copies = before if key in staging.ready else after
                target = partition.staged(buffer)
                copies.append(f"stage<{size}>({target}, {source});")
        waits = ["wait_for_staged();"] if before or after else []
        return [*before, *start, *after, *waits]

    def _write_back(
        self, partition: PartitionText, number: int, block: str
    ) -> Iterator[str]:
        """Yield how results of a body are copied to where others read them."""
        if (staging := partition.staging) is None:
            return
        for buffer in partition.bodies[number].buffers:
            if buffer.key in staging.written_back[number]:
                size = staging.size(buffer)
                target = f"{self._argument(buffer)} + ({block}) * {size}"
                yield f"write_back<{size}>({target}, {partition.staged(buffer)});"

    def _address(self, partition: PartitionText, buffer: Buffer, block: str) -> str:
        """Return an array's address; of a block's own rows, where all would begin."""
        staging, address = partition.staging, partition.staged(buffer)
        if not address or staging is None:
            return self._argument(buffer)
        if buffer.key in staging.staged_whole:
            return address
        return f"{address} - ({block}) * {staging.size(buffer)}"

    def _argument(self, buffer: Buffer) -> str:
        key = buffer.key
        if buffer.kind == "scratch":  # never shared, whatever it is called
            self._scratch += 1
            key = ("scratch", f"#{self._scratch}")
        if key not in self._arguments:
            self._arguments[key] = f"a{len(self.buffers)}"
            self.buffers.append(buffer)
        return self._arguments[key]
