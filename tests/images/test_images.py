"""One image: every format, colour and shape, and what is no image at all."""

import io
import tracemalloc

import numpy as np
import pytest

pytest.importorskip("PIL", reason="Pillow is not installed")

import image_files
from PIL import Image

from ganglion.images import Form, Unreadable, decode
from ganglion.images.decoding import header

SIZE = (10, 14)
RGB = Form(SIZE, fit="resize")


def gradient(rows=SIZE[0], columns=SIZE[1]):
    y, x = np.mgrid[:rows, :columns]
    parts = (255 * y / max(rows - 1, 1), 255 * x / max(columns - 1, 1), 0 * x + 90)
    return np.stack(parts, axis=-1).astype("uint8")


def packed(image, kind, **more):
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **more)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP"])
def test_lossless_formats_give_the_pixels_themselves(kind):
    image = decode(packed(Image.fromarray(gradient()), kind), RGB)
    assert image.dtype == np.uint8
    assert np.array_equal(image, gradient())


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_formats_come_close(kind):
    image = decode(packed(Image.fromarray(gradient()), kind, quality=95), RGB)
    assert np.abs(image.astype(int) - gradient()).mean() < 8


def test_lossless_webp_is_exact():
    data = packed(Image.fromarray(gradient()), "WEBP", lossless=True)
    assert np.array_equal(decode(data, RGB), gradient())


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_turns_the_image_upright(orientation):
    """A camera held otherwise stores the scene turned, and says so."""
    upright = Image.fromarray(gradient())
    turn = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(turn[orientation]) if orientation > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = packed(stored, "PNG", exif=exif)
    assert header(data)[0] == SIZE
    assert np.array_equal(decode(data, RGB), gradient())
    jpeg = decode(packed(stored, "JPEG", exif=exif, quality=95), RGB)
    assert np.abs(jpeg.astype(int) - gradient()).mean() < 8


def test_grey_images_serve_coloured_ones_and_the_reverse():
    grey = Image.fromarray(gradient()[..., 0])
    image = decode(packed(grey, "PNG"), RGB)
    assert np.array_equal(image, np.repeat(gradient()[..., :1], 3, axis=-1))
    form = Form(SIZE, "grayscale", "resize")
    alone = decode(packed(Image.fromarray(gradient()), "PNG"), form)
    assert alone.shape == (*SIZE, 1)
    red, green, blue = (gradient()[..., i].astype(float) for i in range(3))
    wanted = 0.299 * red + 0.587 * green + 0.114 * blue
    assert np.abs(alone[..., 0] - wanted).max() <= 1


def test_sixteen_bits_are_scaled_not_cut_off():
    values = (gradient()[..., 0].astype("uint16")) * 257
    image = decode(packed(Image.fromarray(values), "PNG"), Form(SIZE, "grayscale"))
    assert np.array_equal(image[..., 0], gradient()[..., 0])


def test_black_and_white():
    values = gradient()[..., 0] > 127
    image = decode(packed(Image.fromarray(values), "PNG"), Form(SIZE, "grayscale"))
    assert np.array_equal(image[..., 0], 255 * values)


def test_transparent_places_become_white():
    values = np.dstack([gradient(), np.full(SIZE, 255, "uint8")])
    values[2, 3] = (0, 0, 0, 0)
    data = packed(Image.fromarray(values), "PNG")
    image = decode(data, RGB)
    assert image[2, 3].tolist() == [255, 255, 255]
    image[2, 3] = gradient()[2, 3]
    assert np.array_equal(image, gradient())
    dropped = decode(data, Form(SIZE, background=None))
    assert dropped[2, 3].tolist() == [0, 0, 0]
    assert np.array_equal(decode(data, Form(SIZE, "rgba")), values)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP"])
def test_palettes(kind):
    image = Image.fromarray(gradient()).convert("P", palette=Image.Palette.ADAPTIVE)
    wanted = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode(packed(image, kind), RGB), wanted)


def test_a_palette_with_a_transparent_colour():
    image = Image.new("P", SIZE[::-1], 1)
    image.putpalette([0, 0, 0, 200, 10, 10])
    image.putpixel((0, 0), 0)
    pixels = decode(packed(image, "PNG", transparency=0), RGB)
    assert pixels[0, 0].tolist() == [255, 255, 255]
    assert pixels[5, 5].tolist() == [200, 10, 10]


def test_printers_colours():
    image = Image.fromarray(gradient()).convert("CMYK")
    pixels = decode(packed(image, "JPEG", quality=95), RGB)
    assert np.abs(pixels.astype(int) - gradient()).mean() < 12


def test_the_ways_to_fit():
    """A wide image with a red left, a green middle and a blue right."""
    wide = np.zeros((20, 60, 3), "uint8")
    for part, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)]):
        wide[:, 20 * part : 20 * (part + 1)] = colour
    data = packed(Image.fromarray(wide), "PNG")
    crop = decode(data, Form((20, 20), fit="crop"))
    assert np.array_equal(crop, wide[:, 20:40])
    resized = decode(data, Form((20, 30), fit="resize"))
    assert resized[10, 2].tolist() == [255, 0, 0]
    assert resized[10, 27].tolist() == [0, 0, 255]
    pad = decode(data, Form((60, 60), fit="pad"))
    assert np.array_equal(pad[20:40], wide)
    assert not pad[:20].any()
    assert not pad[40:].any()
    narrow = packed(Image.new("L", (8, 10), 200), "PNG")  # 5.6 columns of 9 are filled
    pad = decode(narrow, Form((7, 9), "grayscale", "pad"))[..., 0]
    assert (pad == [0, 200, 200, 200, 200, 200, 0, 0, 0]).all()


def test_small_images_are_enlarged():
    data = packed(Image.new("RGB", (1, 1), (7, 8, 9)), "PNG")
    assert (decode(data, Form((5, 4))) == [7, 8, 9]).all()


def test_a_large_jpeg_is_decoded_small_and_looks_the_same():
    big = Image.fromarray(gradient(40, 56)).resize((1120, 800))
    data = packed(big, "JPEG", quality=95)
    small = decode(data, Form((40, 56), fit="resize"))
    assert np.abs(small.astype(int) - gradient(40, 56)).mean() < 4


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty"),
        (b"These are only words.\n", "text"),
        (b"\x89PNG\r\n\x1a\n", "no image|trunc|end"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "text"),
        (bytes(range(256)), "not JPEG"),
    ],
)
def test_what_is_no_image_is_said_in_one_line(data, why):
    with pytest.raises(Unreadable, match=why) as error:
        decode(data, RGB)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF"])
def test_files_cut_short_are_unreadable(kind):
    data = packed(
        Image.fromarray(image_files.pixels((9, 99, 200), size=(64, 64))), kind
    )
    with pytest.raises(Unreadable):
        decode(data[: len(data) // 2], RGB)


@pytest.mark.filterwarnings("ignore:.*decompression bomb")
@pytest.mark.parametrize("side", [20_000, 12_000])
def test_bombs_are_refused_by_their_size_before_they_are_decoded(side):
    data = image_files.png_that_claims(side, side)
    assert len(data) < 100_000
    tracemalloc.start()
    with pytest.raises(Unreadable, match="too large"):
        decode(data, RGB)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_missing_files_are_unreadable(tmp_path):
    with pytest.raises(Unreadable, match="No such file"):
        decode(tmp_path / "nothing.png", RGB)
    with pytest.raises(Unreadable, match="directory"):
        decode(tmp_path, RGB)


@pytest.mark.parametrize(
    "arguments", [{"color": "pink"}, {"fit": "squeeze"}, {"method": "magic"}]
)
def test_unknown_forms_are_refused(arguments):
    with pytest.raises(ValueError, match="Unknown"):
        Form(SIZE, **arguments)


def test_a_form_travels_as_plain_data():
    form = Form((3, 4), "grayscale", "pad")
    assert Form.from_data(form.as_data()) == form
    for bad in (
        {},
        {"size": 3},
        {"size": [3, 4], "colour": "rgb"},
        None,
        {"size": "a"},
    ):
        with pytest.raises(ValueError, match="no form"):
            Form.from_data(bad)
