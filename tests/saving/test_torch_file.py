"""PyTorch's files are read without executing anything, and the hostile refused."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganglion.applications import read_state_dict
from ganglion.saving.torch_file import TENSORS
from ganglion.system.pickles import Machine, RefusedError

HARMLESS = (int, float, str, bool, type(None), dict, list, tuple)
MAGIC = 0x1950A86A20F9469CFC6C


def text(word: str) -> bytes:
    raw = word.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(
    count: int, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0
) -> bytes:
    """Return the pickle of a dictionary with one tensor, w."""
    place = text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu")
    place = b"(" + place + number(count) + b"tQ"
    tensor_code = b"(" + place + number(offset) + numbers(*shape) + numbers(*strides)
    tensor_code += b"\x89ccollections\nOrderedDict\n)Rt"
    return (
        b"\x80\x02}"
        + text("w")
        + b"ctorch._utils\n_rebuild_tensor_v2\n"
        + (tensor_code + b"Rs.")
    )


def zipped(
    path: Path, code: bytes, values: Any, method: int = 0, **more: bytes
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a/data.pkl", code)
        archive.writestr("a/data/0", np.asarray(values, "<f4").tobytes())
        for name, content in more.items():
            archive.writestr(f"a/{name}", content)
    return path


def old_form(path: Path, code: bytes, values: Any, count: int | None = None) -> Path:
    """Write the form of PyTorch before 1.6."""
    array = np.asarray(values, "<f4")
    machine = {"protocol_version": 1001, "little_endian": True, "type_sizes": {}}
    parts = [pickle.dumps(item, 2) for item in (MAGIC, 1001, machine)]
    parts += [code, pickle.dumps(["0"], 2)]
    parts.append(struct.pack("<q", array.size if count is None else count))
    path.write_bytes(b"".join([*parts, array.tobytes()]))
    return path


@pytest.mark.parametrize("write", [zipped, old_form])
def test_a_tensor_with_strides_is_read(tmp_path, write):
    code = tensor(8, (2, 3), (1, 2), offset=1)
    (array,) = read_state_dict(write(tmp_path / "w.pth", code, range(8))).values()
    assert array.dtype == np.float32
    assert array.tolist() == [[1, 3, 5], [2, 4, 6]]


class Bomb:
    """What `pickle` would run: it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("write", [zipped, old_form])
def test_a_call_of_the_system_is_refused(tmp_path, write, protocol):
    mark = tmp_path / "it-ran"
    code = pickle.dumps({"w": Bomb(mark)}, protocol)
    match = "nothing was executed"
    if protocol == 2:
        match = f"names {os.system.__module__}.system, .*nothing was executed"
    with pytest.raises(ValueError, match=match):
        read_state_dict(write(tmp_path / "w.pth", code, [0]))
    assert not mark.exists()


@pytest.mark.parametrize(
    "code",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"cbuiltins\neval\n(X\x01\x00\x00\x001tR.",
        b"ctorch.jit\n_load\n)R.",
        b"ccollections\nnamedtuple\n)R.",
        b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.",
    ],
)
def test_other_names_are_refused(code):
    with pytest.raises(RefusedError, match=r"it names .* nothing was executed"):
        Machine(code, TENSORS).run()


def test_instructions_beyond_tensors_are_refused():
    """All 256 bytes: those that are not known are refused, none causes a crash."""
    for code in range(256):
        for tail in (b"", b"\x00" * 8, b"(" * 8, b"\xff" * 8):
            for start in (b"", b"(", b"}(", b"])", b"K\x01K\x02"):
                with contextlib.suppress(RefusedError):
                    value = Machine(start + bytes([code]) + tail, TENSORS).run()
                    assert type(value) in HARMLESS


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (tensor(8, (9,), (1,)), "beyond"),
        (tensor(8, (2,), (8,)), "beyond"),
        (tensor(8, (8,), (1,), offset=1), "beyond"),
        (tensor(8, (10**6, 10**6), (0, 0)), "beyond"),
        (tensor(8, (2**31 - 1,) * 40, (1,) * 40), "beyond"),
        (tensor(8, (-1,), (1,)), "cannot be"),
        (tensor(8, (2,), (-1,)), "cannot be"),
        (tensor(8, (2, 2), (1,)), "cannot be"),
        (tensor(9, (2,), (1,)), "differs in size|too early"),
        (tensor(2**31 - 1, (2,), (1,)), "differs in size|too early"),
        (b"\x80\x02K\x05.", "no dictionary|not hold a dictionary"),
        (b"\x80\x02}X\x01\x00\x00\x00wK\x05s.", "'w' is not a tensor"),
        (b"\x80\x02}K\x01K\x02s.", "keys"),
        (b"\x80\x02}h\x07.", "fit together"),
        (b"\x80\x02", "too early|not hold"),
        (b"", "too early|not hold"),
    ],
)
@pytest.mark.parametrize("write", [zipped, old_form])
def test_nonsense_is_refused(tmp_path, write, code, match):
    path = write(tmp_path / "w.pth", code, range(8))
    with pytest.raises(ValueError, match=match) as caught:
        read_state_dict(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("write", [zipped, old_form])
def test_a_file_cut_anywhere_is_refused(tmp_path, write):
    path = write(tmp_path / "w.pth", tensor(8, (8,), (1,)), range(8))
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="cannot be read as PyTorch weights"):
            read_state_dict(path)


@pytest.mark.parametrize("write", [zipped, old_form])
def test_a_changed_byte_never_causes_more_than_a_refusal(tmp_path, write):
    path = write(tmp_path / "w.pth", tensor(8, (8,), (1,)), range(8))
    content = path.read_bytes()
    draw = np.random.default_rng(0)
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= int(draw.integers(1, 256))
        path.write_bytes(bytes(changed))
        try:
            tensors = read_state_dict(path)
        except ValueError:
            continue
        assert all(tensor.size <= 8 for tensor in tensors.values())


def test_compressed_members_and_big_endian_numbers_are_refused(tmp_path):
    code = tensor(8, (8,), (1,))
    packed = zipped(tmp_path / "a.pth", code, range(8), zipfile.ZIP_DEFLATED)
    with pytest.raises(ValueError, match="compressed"):
        read_state_dict(packed)
    with pytest.raises(ValueError, match="big-endian"):
        read_state_dict(zipped(tmp_path / "b.pth", code, range(8), byteorder=b"big"))


def test_other_files_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        read_state_dict(tmp_path / "none.pth")
    with pytest.raises(ValueError, match="folder"):
        read_state_dict(tmp_path)
    page = tmp_path / "page.pth"
    page.write_text("<html>404</html>")
    with pytest.raises(ValueError, match="does not start"):
        read_state_dict(page)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "hello")
    page.write_bytes(buffer.getvalue())
    with pytest.raises(ValueError, match="without the pickle"):
        read_state_dict(page)


@pytest.mark.rivals
@pytest.mark.parametrize("is_new", [True, False])
def test_what_pytorch_writes_is_read(tmp_path, is_new):
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Linear(4, 2)
    )
    tensors = dict(model.state_dict())
    tensors["turned"] = torch.arange(6.0).reshape(2, 3).T
    tensors["half"] = torch.arange(3).half()
    tensors["parameter"] = torch.nn.Parameter(torch.ones(2))
    path = tmp_path / "w.pth"
    torch.save(tensors, path, _use_new_zipfile_serialization=is_new)
    arrays = read_state_dict(path)
    assert list(arrays) == list(tensors)
    for name, tensor in tensors.items():
        assert np.array_equal(arrays[name], tensor.detach().numpy())
        assert arrays[name].shape == tuple(tensor.shape)
