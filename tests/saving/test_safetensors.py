"""The format safetensors: what is written is read, and the hostile refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, saving
from ganglion.saving.files import reading


def model() -> Any:
    return keras.Sequential([keras.Input((3,)), layers.Dense(2, name="fc")])


def packed(header: Any, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def entry(
    shape: Any = (2, 3), offsets: Any = (0, 24), dtype: Any = "F32"
) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


PLAIN = {"fc.weight": entry(), "fc.bias": entry([2], [24, 32])}
TWICE = (
    b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    b'"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "not a safetensors file"),
    "header beyond the end": (struct.pack("<Q", 2**60) + b"{}", "cut short"),
    "header not JSON": (packed(b"{nonsense"), "header is damaged"),
    "header is a list": (packed(b"[1, 2]"), "does not begin"),
    "header not UTF-8": (packed(b'{"\xff":1}'), "header is damaged"),
    "deep": (packed(b'{"a":' + b"[" * 100_000), "nested too deeply|damaged"),
    "name twice": (packed(TWICE, bytes(4)), "'a' twice"),
    "unknown type": (packed({"a": entry(dtype="F7")}, bytes(24)), "unknown type 'F7'"),
    "type a list": (packed({"a": entry(dtype=[])}, bytes(24)), "unknown type"),
    "no offsets": (packed({"a": {"dtype": "F32", "shape": []}}), "no plain dtype"),
    "one offset": (packed({"a": entry(offsets=[0])}, bytes(24)), "impossible location"),
    "negative": (
        packed({"a": entry(offsets=[-24, 0])}, bytes(24)),
        "impossible location",
    ),
    "negative shape": (packed({"a": entry([-2, -3])}, bytes(24)), "impossible shape"),
    "shape of a float": (packed({"a": entry([6.0])}, bytes(24)), "impossible shape"),
    "a hundred axes": (
        packed({"a": entry([1] * 100, [0, 4])}, bytes(4)),
        "impossible shape",
    ),
    "huge": (packed({"a": entry([2**40, 2**40])}, bytes(24)), "not its size"),
    "empty but huge": (packed({"a": entry([0, 2**80], [0, 0])}), "cannot be loaded"),
    "truncated": (packed(PLAIN, bytes(31)), "'fc.bias'.*cut short"),
    "surplus": (packed(PLAIN, bytes(40)), "8 of its bytes belong to no array"),
    "overlap": (
        packed({"a": entry(), "b": entry(offsets=[20, 44])}, bytes(44)),
        "'b' lies over another",
    ),
    "the same bytes": (packed({"a": entry(), "b": entry()}, bytes(24)), "over another"),
    "gap": (packed({"a": entry(offsets=[4, 28])}, bytes(28)), "leaves a gap"),
    "metadata": (packed({"__metadata__": {"a": 1}}), "metadata is not a table"),
    "orders to a terminal": (
        packed({"\x1b[2J": entry(dtype="x")}, bytes(24)),
        r"\\x1b\[2J",
    ),
    "other model": (packed({"x": entry()}, bytes(24)), r"no place for x \(2, 3\)"),
    "wrong shape": (
        packed(
            {"fc.weight": entry([3, 2]), "fc.bias": entry([2], [24, 32])}, bytes(32)
        ),
        r"fc.weight is \(3, 2\), the model's \(2, 3\)",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    content, reason = HOSTILE[name]
    path = tmp_path / "hostile.safetensors"
    path.write_bytes(content)
    ours = model()
    before = ours.get_weights()
    with pytest.raises(ValueError, match=reason) as caught:
        ours.load_weights(path)
    assert str(path) in str(caught.value)
    for old, new in zip(before, ours.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_plain_file_is_read(tmp_path: Path) -> None:
    body = np.arange(8, dtype="<f4").tobytes()
    (tmp_path / "w.safetensors").write_bytes(packed(PLAIN, body))
    ours = model()
    ours.load_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(ours.get_weights()[0], [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(ours.get_weights()[1], [6, 7])


def test_every_type_comes_back_and_the_data_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    types = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8"]
    arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in types}
    arrays["bf16"] = np.ones(3, ml_dtypes.bfloat16)
    arrays["big-endian"] = np.arange(3, dtype=">f4")
    arrays["no axis"], arrays["none"] = np.float32(3.0), np.zeros((0, 3), "f4")
    with open(path, "wb") as file:
        saving.safetensors.write(file, {n: np.asarray(a) for n, a in arrays.items()})
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert length % 8 == 0
    with reading(path):
        tensors = saving.safetensors.read(path)
    assert tensors.is_ordered
    assert list(tensors.arrays) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(tensors.arrays[name], array)


def test_the_reader_of_others_reads_our_files(tmp_path: Path) -> None:
    theirs = pytest.importorskip("safetensors.numpy", reason="is not installed")
    ours = model()
    ours.save_weights(tmp_path / "w.safetensors")
    arrays = theirs.load_file(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(arrays["fc.weight"].T, ours.get_weights()[0])


def test_writing_is_all_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    model().save_weights(path)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="overwrite=False"):
        model().save_weights(path, overwrite=False)
    with pytest.raises(ValueError, match="object, which safetensors does not have"):
        saving.files.write_checked(
            path, lambda file: saving.safetensors.write(file, {"x": np.array([None])})
        )
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.safetensors"]


def test_skipping_loads_what_fits_by_its_name(tmp_path: Path) -> None:
    model().save_weights(tmp_path / "w.safetensors")
    wider = keras.Sequential(
        [keras.Input((3,)), layers.Dense(2, name="fc"), layers.Dense(7, name="new")]
    )
    with pytest.warns(UserWarning, match=r"2 mismatch.*new\.bias, new\.weight"):
        wider.load_weights(tmp_path / "w.safetensors", skip_mismatch=True)


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_a_missing_file_and_by_name_say_so(ending: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file"):
        model().load_weights(tmp_path / f"none{ending}")
    with pytest.raises(ValueError, match="by_name"):
        model().load_weights(tmp_path / f"none{ending}", by_name=True)
