"""Decoders: IDX, CIFAR-10 and PNG, with every kind of damage refused."""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from datasets_fakes import idx_bytes, npz_bytes, tar_bytes, tiny_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from ganglion.datasets import decode, png
from ganglion.datasets.decode import Arrays


def chunk(kind: bytes, body: bytes) -> bytes:
    crc = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)


def header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    body = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return chunk(b"IHDR", body)


def filtered(image: np.ndarray, filters: list[int]) -> bytes:
    """PNG's five filters, written straight from the specification, byte by byte."""
    _, width, channels = image.shape
    pixels = image.astype(int)
    lines = bytearray()
    for y, kind in enumerate(filters):
        lines.append(kind)
        for x in range(width):
            for c in range(channels):
                a = pixels[y, x - 1, c] if x else 0
                b = pixels[y - 1, x, c] if y else 0
                d = pixels[y - 1, x - 1, c] if x and y else 0
                distances = [(abs(b - d), 0), (abs(a - d), 1), (abs(a + b - 2 * d), 2)]
                paeth = (a, b, d)[min(distances)[1]]
                guess = (0, a, b, (a + b) // 2, paeth)[kind]
                lines.append((pixels[y, x, c] - guess) % 256)
    return bytes(lines)


def png_bytes(image: np.ndarray, filters: list[int]) -> bytes:
    height, width, channels = image.shape
    packed = zlib.compress(filtered(image, filters))
    half = len(packed) // 2
    return (
        png.SIGNATURE
        + header(width, height, colour=2 if channels == 3 else 0)
        + chunk(b"tEXt", b"Comment\0ancillary chunks are skipped")
        + chunk(b"IDAT", packed[:half])
        + chunk(b"IDAT", packed[half:])
        + chunk(b"IEND", b"")
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), channels=st.sampled_from([1, 3]), width=st.integers(1, 6))
def test_png_round_trip(data: st.DataObject, channels: int, width: int) -> None:
    filters = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    seed = data.draw(st.integers(0, 2**32 - 1))
    shape = (len(filters), width, channels)
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(png.decode(png_bytes(image, filters)), image)


GOOD = png_bytes(np.zeros((2, 3, 3), np.uint8), [1, 4])
IDAT = chunk(b"IDAT", zlib.compress(bytes(20)))
END = chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"GIF89a", "not a PNG file"),
        (GOOD[:-5], "cut short"),
        (GOOD[:40], "cut short"),
        (GOOD[:60] + b"!" + GOOD[61:], "fails its checksum"),
        (png.SIGNATURE, "begin with IHDR and end with IEND"),
        (png.SIGNATURE + header(3, 2) + IDAT, "begin with IHDR and end with IEND"),
        (png.SIGNATURE + header(3, 2, depth=16) + IDAT + END, "only plain 8-bit"),
        (png.SIGNATURE + header(3, 2, colour=3) + IDAT + END, "only plain 8-bit"),
        (png.SIGNATURE + header(0, 2) + IDAT + END, "is empty"),
        (png.SIGNATURE + chunk(b"IHDR", b"short") + IDAT + END, "wrong length"),
        (png.SIGNATURE + header(3, 3) + IDAT + END, "do not fill the image exactly"),
        (png.SIGNATURE + header(3, 1) + IDAT + END, "do not fill the image exactly"),
        (
            png.SIGNATURE + header(3, 2) + chunk(b"IDAT", b"junk") + END,
            "do not unpack",
        ),
        (
            png.SIGNATURE + header(3, 2) + chunk(b"PLTE", b"abc") + IDAT + END,
            "chunk b'PLTE' is not supported",
        ),
        (
            png.SIGNATURE
            + header(3, 2)
            + chunk(b"IDAT", zlib.compress(b"\x07" * 20))
            + END,
            "filter 7 does not exist",
        ),
    ],
)
def test_a_bad_png_is_refused(bad: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        png.decode(bad)


def test_a_png_that_unpacks_to_gigabytes_is_refused_early() -> None:
    bomb = chunk(b"IDAT", zlib.compress(bytes(100_000_000), 9))
    with pytest.raises(ValueError, match="do not fill the image exactly"):
        png.decode(png.SIGNATURE + header(3, 2) + bomb + END)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x00\x00\x0d\x01" + bytes(8), "not an IDX file"),
        (b"\x00\x00\x08\x03\x00\x00", "cut short"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], r"holds 5 bytes, not \(2, 3\)"),
        (b"\x00\x00\x08\x02" + b"\x80\0\0\0" * 2, "holds 0 bytes"),
    ],
)
def test_a_bad_idx_file_is_refused(bad: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode.idx(bad)


def test_cifar_planes_become_pixels() -> None:
    record = bytes([7]) + bytes([1] * 1024) + bytes([2] * 1024) + bytes([3] * 1024)
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, 6)]
    names.append("cifar-10-batches-bin/test_batch.bin")
    archive = tar_bytes(dict.fromkeys(names, record))
    arrays = decode.cifar_binary({decode.CIFAR_ARCHIVE: archive}.__getitem__)
    assert arrays.x_train.shape == (5, 32, 32, 3)
    assert arrays.y_test.tolist() == [[7]]
    assert arrays.x_train[4, 31, 31].tolist() == [1, 2, 3]


def test_a_short_cifar_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batch of 3000 bytes is cut short"):
        decode.cifar_batches(lambda name: bytes(3000))


def sheets(labels: bytes = b"[3]") -> dict[str, bytes]:
    image = np.arange(3072, dtype=np.uint64).reshape(1, 1024, 3).astype(np.uint8)
    files = dict.fromkeys(
        [f"{name}.png" for name in (*decode.CIFAR_TRAIN, decode.CIFAR_TEST)],
        png_bytes(image, [1]),
    )
    return {**files, "train_lables.json": b"[6,9,9,4,1]", "test_lables.json": labels}


def test_cifar_sheets_hold_one_image_per_row() -> None:
    arrays = decode.cifar_sheets(sheets().__getitem__)
    assert arrays.x_train.shape == (5, 32, 32, 3)
    assert arrays.x_test[0, 0, :2].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert arrays.x_test[0, 1, 0].tolist() == [96, 97, 98]
    assert arrays.y_train.ravel().tolist() == [6, 9, 9, 4, 1]


@pytest.mark.parametrize("labels", [b"[10]", b"[-1]", b'["a"]', b"[[1]]", b"{}", b"["])
def test_bad_label_lists_are_refused(labels: bytes) -> None:
    with pytest.raises(ValueError, match=r"label|Expecting value"):
        decode.cifar_sheets(sheets(labels).__getitem__)


def test_a_sheet_of_another_width_is_refused() -> None:
    files = {**sheets(), "test_batch.png": GOOD}
    with pytest.raises(ValueError, match=r"sheet has the shape \(2, 3, 3\)"):
        decode.cifar_sheets(files.__getitem__)


def test_an_npz_file_of_floats_is_refused() -> None:
    floats = Arrays(*(array.astype(np.float32) for array in tiny_arrays()))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="x_train holds float32, not uint8"):
        decode.npz(io.BytesIO(npz_bytes(floats)))


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10**6), value=st.integers(0, 255), cut=st.booleans())
def test_damage_anywhere_in_an_npz_is_a_known_error(
    at: int, value: int, cut: bool
) -> None:
    """A damaged cache must lead to a new fetch, never to a stray traceback."""
    content = npz_bytes(tiny_arrays())
    at %= len(content)
    rest = b"" if cut else bytes([value]) + content[at + 1 :]
    with suppress(*decode.DAMAGE):
        decode.npz(io.BytesIO(content[:at] + rest))
