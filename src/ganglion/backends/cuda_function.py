"""A kernel function put together from lanes of bodies, side by side in its blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ganglion.backends.cuda_schedule import Haste
from ganglion.backends.cuda_text import THREADS, Emitted, c_type, root
from ganglion.backends.cuda_work import Root
from ganglion.plan.kernel import Buffer
from ganglion.plan.memory import rounded


@dataclass(frozen=True)
class RowsNear:
    """What blocks that go on row by row have in memory of their own.

    Of arrays that a lane makes, the elements of a row are known: `private` are those
    that nobody else reads; `shown` are copied to where others find them, at the end.
    Whole arrays that are ready `early` are copied before others have come to an end.
    """

    rows: int  # of a block
    private: Mapping[Root, int]
    shown: Mapping[Root, int]
    early: Sequence[Buffer]

    def is_early(self, buffer: Buffer) -> bool:
        """Tell whether a block copies all of an array before it starts."""
        return any(root(one) == root(buffer) for one in self.early)

    def size(self, buffer: Buffer) -> int:
        """Return how many elements of an array a block has, 0 for none."""
        if self.is_early(buffer):
            return buffer.size
        row = self.private.get(root(buffer)) or self.shown.get(root(buffer), 0)
        return self.rows * row


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
        if not place or self.near is None or self.near.is_early(buffer):
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
        calls = []
        for body in lane.bodies:
            name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
            given = ", ".join(
                lane.address(one) or f"a{self._argument(one)}" for one in body.buffers
            )
            which = f"BLOCK_OF_LANE, {lane.blocks}"
            if near:
                which = f"(BLOCK_OF_LANE) * {near.rows}"
            separator = ", " if given else ""
            calls.append(f"NAME_{name}({which}{separator}{given});")
        start = [] if lane.bodies[0].waits else ["start_after_others();"]
        if near:
            early, shown = self._copies(lane, near)
            start = [*early, *start, *["BARRIER;"] * bool(early)]
            calls += ["\n    ".join(shown)] * bool(shown)
        self._lanes.append((lane.blocks, [*start, "\n    BARRIER;\n    ".join(calls)]))

    def _copies(self, lane: LaneText, near: RowsNear) -> tuple[list[str], list[str]]:
        """Return what copies arrays to a block, and what shows others its own."""
        early, shown = [], []
        buffers = {root(b): b for body in lane.bodies for b in body.buffers}
        for key, buffer in buffers.items():
            count, place = near.size(buffer), lane.near_place(buffer)
            if near.is_early(buffer):
                given = f"a{self._argument(buffer)}"
                early.append(f"bring_near<{count}>({place}, {given});")
            elif key in near.shown:
                to = f"a{self._argument(buffer)} + (BLOCK_OF_LANE) * {count}"
                shown.append(f"show_others<{count}>({to}, {place});")
        return early, shown

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
