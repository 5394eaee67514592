"""A kernel function put together from lanes of bodies, side by side in its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ganglion.backends.cuda_schedule import Haste
from ganglion.backends.cuda_text import THREADS, Emitted, c_type, root
from ganglion.backends.cuda_work import Root
from ganglion.plan.kernel import Buffer
from ganglion.plan.memory import rounded


@dataclass(frozen=True)
class LaneText:
    """A lane as bodies of code, one after the other."""

    bodies: list[Emitted]
    blocks: int
    haste: Haste
    rows: int = 0  # of a block
    private: Mapping[Root, int] = field(default_factory=dict)  # elements of a row

    def order(self) -> tuple[bool, int, float, int]:
        """Sort what takes long to the front, and what nobody waits for to the end."""
        work = max(one.work for one in self.bodies)
        return self.blocks > 1, self.haste.value, -work, -self.blocks

    @cached_property
    def _layout(self) -> tuple[dict[Root, int], int]:
        """Where in shared memory private arrays are, and the end of them all."""
        found: dict[Root, int] = {}
        end = rounded(max(one.shared for one in self.bodies), 16)
        for buffer in (b for one in self.bodies for b in one.buffers):
            key = root(buffer)
            if key in self.private and key not in found:
                found[key] = end
                row = self.private[key] * buffer.dtype.itemsize
                end += rounded(self.rows * row, 16)
        return found, end

    @property
    def shared(self) -> int:
        """The shared memory of a block."""
        return self._layout[1]

    def address(self, buffer: Buffer) -> str:
        """Return where row 0 of a private array would be, "" if it is none."""
        at = self._layout[0].get(root(buffer))
        if at is None:
            return ""
        before = self.rows * self.private[root(buffer)]
        kind = c_type(buffer.dtype)
        return f"({kind}*)(shared_bytes + {at}) - (BLOCK_OF_LANE) * {before}"


class Function:
    """A kernel function that is put together from lanes of bodies."""

    def __init__(self) -> None:
        self._bodies: dict[str, str] = {}
        self._buffers: list[Buffer] = []
        self._places: dict[Root, int] = {}
        self._lanes: list[tuple[int, bool, list[str]]] = []
        self._scratch = 0

    def add(self, lane: LaneText) -> None:
        """Add a lane to the right of those that are there."""
        calls = []
        for body in lane.bodies:
            name = self._bodies.setdefault(body.text, f"body{len(self._bodies)}")
            given = ", ".join(
                lane.address(one) or f"a{self._argument(one)}" for one in body.buffers
            )
            which = f"BLOCK_OF_LANE, {lane.blocks}"
            if lane.rows:
                which = f"(BLOCK_OF_LANE) * {lane.rows}"
            separator = ", " if given else ""
            calls.append(f"{name}({which}{separator}{given});")
        self._lanes.append((lane.blocks, lane.bodies[0].waits, calls))

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
        for number, (blocks, waits, calls) in enumerate(self._lanes):
            last = number == len(self._lanes) - 1
            head = "" if last else f"if (BLOCK < {start + blocks}) "
            lines.append(f"  {head}{{")
            if not waits:
                lines.append("    start_after_others();")
            at = f"BLOCK - {start}" if start else "BLOCK"
            for index, one in enumerate(calls):
                if index:
                    lines.append("    BARRIER;")
                called = one.replace("BLOCK_OF_LANE", at)
                lines.append(f"    NAME_{called}")
            lines.append("  }" if last else "  } else")
            start += blocks
        return "\n".join([*lines, "}", ""]), self._buffers
