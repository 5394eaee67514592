"""A kernel function put together from lanes of bodies, side by side in its blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ganglion.compiler.cuda.epilogue import Root
from ganglion.compiler.cuda.launches import Haste
from ganglion.compiler.cuda.text import THREADS, Emitted, c_type, root
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.memory import rounded


@dataclass(frozen=True)
class RowsNear:
    """What blocks that go on row by row have in memory of their own.

    Of most arrays it is a block's own rows, whose elements are known. `private` are
    those that only the lane makes and reads; `shown` are copied to where others find
    them, too; `given` are made by others, and copied at the start, as `whole` arrays
    are. What is ready `early` is copied before others have come to an end.
    """

    rows: int  # of a block
    private: Mapping[Root, int]
    shown: Sequence[Mapping[Root, int]]  # by each body
    given: Mapping[Root, int]
    whole: Collection[Root]
    early: Collection[Root]

    def size(self, buffer: Buffer) -> int:
        """Return how many elements of an array a block has, 0 for none."""
        if root(buffer) in self.whole:
            return buffer.size
        for known in (self.private, self.given, *self.shown):
            if root(buffer) in known:
                return self.rows * known[root(buffer)]
        return 0


@dataclass(frozen=True)
class LaneText:
    """A lane as bodies of code, one after the other."""

    bodies: list[Emitted]
    blocks: int
    haste: Haste
    near: RowsNear | None = None  # for lanes that go on row by row

    def order(self) -> tuple[bool, int, float, int]:
        """Sort what takes long to the front, and what nobody waits for to the end."""
        work = max(one.work for one in self.bodies)
        return self.blocks > 1, self.haste.value, -work, -self.blocks

    @cached_property
    def _layout(self) -> tuple[dict[Root, int], int]:
        """Where in shared memory arrays of a block are, and the end of them all."""
        found: dict[Root, int] = {}
        end = rounded(max(one.shared for one in self.bodies), 16)
        for buffer in (b for one in self.bodies for b in one.buffers):
            size = self.near.size(buffer) if self.near else 0
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
        if not place or self.near is None or root(buffer) in self.near.whole:
            return place
        return f"{place} - (BLOCK_OF_LANE) * {self.near.size(buffer)}"


class Function:
    """A kernel function that is put together from lanes of bodies."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._buffers: list[Buffer] = []
        self._places: dict[Root, int] = {}
        self._lanes: list[tuple[int, list[str]]] = []
        self._scratch = 0

    def add(self, lane: LaneText) -> None:
        """Add a lane to the right of those that are there."""
        near = lane.near
        lines = [] if lane.bodies[0].waits else ["start_after_others();"]
        if near:
            lines = self._bring(lane, near, lines)
        which = f"(BLOCK_OF_LANE) * {near.rows}" if near else "BLOCK_OF_LANE"
        for number, body in enumerate(lane.bodies):
            if number:
                lines.append("BARRIER;")
            if number and near:
                lines += self._show(lane, near, number - 1)
            name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
            given = [
                lane.address(one) or f"a{self._argument(one)}" for one in body.buffers
            ]
            blocks = [] if near else [str(lane.blocks)]
            lines.append(f"NAME_{name}({', '.join([which, *blocks, *given])});")
        self._lanes.append((lane.blocks, lines))

    def _bring(self, lane: LaneText, near: RowsNear, start: list[str]) -> list[str]:
        """Return how a block starts, and copies what it needs of arrays."""
        early, then = list[str](), list[str]()
        buffers = {root(b): b for body in lane.bodies for b in body.buffers}
        for key, buffer in buffers.items():
            if key in near.whole or key in near.given:
                size, far = near.size(buffer), f"a{self._argument(buffer)}"
                if key not in near.whole:
                    far += f" + (BLOCK_OF_LANE) * {size}"
                place = lane.near_place(buffer)
                copies = early if key in near.early else then
                copies.append(f"bring_near<{size}>({place}, {far});")
        return [*early, *start, *then, *["all_near();"] * bool(early or then)]

    def _show(self, lane: LaneText, near: RowsNear, number: int) -> Iterator[str]:
        """Yield how others are shown what a body has made."""
        for buffer in lane.bodies[number].buffers:
            if root(buffer) in near.shown[number]:
                size = near.size(buffer)
                far = f"a{self._argument(buffer)} + (BLOCK_OF_LANE) * {size}"
                yield f"show_others<{size}>({far}, {lane.near_place(buffer)});"

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
        for number, (blocks, calls) in enumerate(self._lanes):
            last = number == len(self._lanes) - 1
            head = "" if last else f"if (BLOCK < {start + blocks}) "
            lines.append(f"  {head}{{")
            at = f"BLOCK - {start}" if start else "BLOCK"
            lines += [f"    {one.replace('BLOCK_OF_LANE', at)}" for one in calls]
            lines.append("  }" if last else "  } else")
            start += blocks
        return "\n".join([*lines, "}", ""]), self._buffers
