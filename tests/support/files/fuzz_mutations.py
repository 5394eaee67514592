"""Damage for files: bytes, JSON and archives, changed by chance from a seed."""

from __future__ import annotations

import copy
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator
Change = Callable[[bytes, Rng], bytes]

EXTREMES = (0, 1, 2, 7, 127, 128, 255, 256, 32767, 65535, 2**24, 2**31 - 1, 2**31,
            2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**64 - 1)  # fmt: skip
HOSTILE: list[Any] = [
    None, True, "", -1, 0, 1.5, -0.0, 1e308, 1e-320, [], {}, [[]], "a" * 5000, "\x00",
    "\ud800", "../../x", "os.system", 10**6, 10**9, 10**18, -(10**9), 2**31, 2**63,
    float("nan"), float("inf"), ["a", 0, 0], [None, 10**9], [None] * 40,
    [1] * 2000, {"class_name": "Dense", "config": {}}, "float64", "int8", "object",
    "V1000000000", "same", "softmax", [3, 3, 3, 3], "channels_first",
    {"class_name": "__lambda__", "config": {"value": ["4wAAAA==", None, None]}},
    {"class_name": "__numpy__", "config": {"value": [1], "dtype": "V2000000000"}},
    {"class_name": "__numpy__", "config": {"value": [[1], [1, 2]], "dtype": "f4"}},
    {"class_name": "__tensor__", "config": {"value": 3, "dtype": "float32"}},
    {"class_name": "__slice__", "config": {"start": 0, "stop": 10**18, "step": 1}},
    {"module": "os", "class_name": "system", "config": {"command": "touch canary"}},
    {"module": "fuzz_canary", "class_name": "Canary", "config": {},
     "registered_name": "fuzz_canary>Canary"},
    {"module": "builtins", "class_name": "function", "config": "eval",
     "registered_name": "function"},
]  # fmt: skip


# ---- bytes -------------------------------------------------------------------------


def flipped(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    for at in rng.integers(0, max(len(changed), 1), int(rng.integers(1, 9))):
        if changed:
            changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def overwritten(data: bytes, rng: Rng) -> bytes:
    changed = bytearray(data)
    at = int(rng.integers(0, max(len(changed), 1)))
    length = int(rng.integers(1, 64))
    changed[at : at + length] = rng.bytes(len(changed[at : at + length]))
    return bytes(changed)


def enlarged_number(data: bytes, rng: Rng) -> bytes:
    """Put an extreme number where one of 1, 2, 4 or 8 bytes may lie."""
    changed, size = bytearray(data), int(rng.choice([1, 2, 4, 8]))
    number = EXTREMES[rng.integers(len(EXTREMES))] % 256**size
    order = "little" if rng.random() < 0.7 else "big"
    at = int(rng.integers(0, max(len(changed) - size, 1)))
    changed[at : at + size] = number.to_bytes(size, order)  # type: ignore[arg-type]
    return bytes(changed)


def cut(data: bytes, rng: Rng) -> bytes:
    return data[: int(rng.integers(0, len(data) + 1))]


def left_out(data: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(0, len(data) + 1))
    return data[:at] + data[at + int(rng.integers(1, 200)) :]


def doubled(data: bytes, rng: Rng) -> bytes:
    at, to = sorted(int(position) for position in rng.integers(0, len(data) + 1, 2))
    to = min(to, at + 4096)
    return data[:to] + data[at:to] + data[to:]


def lengthened(data: bytes, rng: Rng) -> bytes:
    return data + rng.bytes(int(rng.integers(1, 300)))


def moved(data: bytes, rng: Rng) -> bytes:
    size = min(int(rng.integers(1, 64)), len(data))
    at, to = (
        int(position) for position in rng.integers(0, max(len(data) - size, 1), 2)
    )
    changed = bytearray(data)
    changed[to : to + size] = data[at : at + size]
    return bytes(changed)


BYTES: list[Change] = [flipped, flipped, overwritten, enlarged_number, enlarged_number,
                       cut, left_out, doubled, lengthened, moved]  # fmt: skip


def damaged(data: bytes, rng: Rng) -> bytes:
    """Return bytes with one to three changes."""
    for _ in range(int(rng.integers(1, 4))):
        data = BYTES[rng.integers(len(BYTES))](data, rng)
    return data


# ---- JSON ----------------------------------------------------------------------------


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """Return every place in a tree, as what holds it and its key."""
    numbers, stack = [], [tree]
    while stack:
        holder = stack.pop()
        keys: Any = ()
        if isinstance(holder, dict):
            keys = list(holder)
        elif isinstance(holder, list):
            keys = range(len(holder))
        for key in keys:
            numbers.append((holder, key))
            stack.append(holder[key])
    return numbers


def changed_tree(tree: Any, rng: Rng) -> Any:
    """Return a tree with one to four nodes replaced, removed, swapped or nested."""
    tree = copy.deepcopy(tree)
    for _ in range(int(rng.integers(1, 5))):
        places = _places(tree)
        if not places:
            return tree
        holder, key = places[rng.integers(len(places))]
        other, where = places[rng.integers(len(places))]
        what = int(rng.integers(6))
        if what <= 1:
            holder[key] = copy.deepcopy(HOSTILE[rng.integers(len(HOSTILE))])
        elif what == 2:
            del holder[key]
        elif what == 3:
            holder[key] = copy.deepcopy(other[where])
        elif what == 4 and isinstance(holder[key], (int, float)):
            holder[key] = EXTREMES[rng.integers(len(EXTREMES))] * int(
                rng.choice([-1, 1])
            )
        elif isinstance(holder, list) and len(places) < 3000:
            holder.extend(copy.deepcopy(holder[:50]))
    return tree


def numbers_in(tree: Any) -> list[tuple[Any, Any]]:
    """Return the places of numbers, as what holds them and their key."""
    return [
        (holder, key)
        for holder, key in _places(tree)
        if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool)
    ]


def changed_json(data: bytes, rng: Rng) -> bytes:
    """Return other JSON, seldom broken JSON."""
    if rng.random() < 0.1:
        return damaged(data, rng)
    text = json.dumps(changed_tree(json.loads(data), rng))
    return text.encode("utf-8", "surrogatepass")


# ---- archives ------------------------------------------------------------------------


def changed_member(data: bytes, rng: Rng, changes: dict[str, Change]) -> bytes:
    """Return a zip file, sound but for what is in one of its members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    names = [name for name in parts if any(name.endswith(ending) for ending in changes)]
    name = names[rng.integers(len(names))]
    change = next(change for ending, change in changes.items() if name.endswith(ending))
    parts[name] = change(parts[name], rng)
    if rng.random() < 0.05:
        del parts[list(parts)[rng.integers(len(parts))]]
    packed = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", packed) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return buffer.getvalue()
