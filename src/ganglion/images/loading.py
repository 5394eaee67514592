"""A folder of images as arrays: decoded in parallel once, and split."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from ganglion import config
from ganglion.images import cache
from ganglion.images.cache import Decoded
from ganglion.images.decoding import Form, Unreadable, decode, header, pillow
from ganglion.images.finding import (
    TEST,
    TRAIN,
    VALIDATION,
    WHOLE,
    ImagesError,
    Listing,
    Part,
    find,
    stratified,
)
from ganglion.system.records import record

Watch = Callable[[int, int], None]  # images done, of how many
SIZES = (32, 48, 64, 96, 128)
LOOKED_AT = 200  # files, to choose a size and colours
TEST_SHARE = 0.2
MOST_AT_ONCE = 250  # images a batch
MOST_PIXELS_AT_ONCE = 400_000  # a large network holds a few kB of each
_GREY = ("L", "LA", "1", "I", "I;16", "I;16B", "I;16L")


@record(guarded=True)
class Images:
    """Some images with the class of each, and the files they are from."""

    x: np.ndarray  # integers from 0 to 255: (images, rows, columns, channels)
    y: np.ndarray  # class numbers
    files: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.files)


@record(guarded=True)
class ImageFolder:
    """A folder of images, decoded and split; parts that are not requested are None."""

    folder: Path
    classes: tuple[str, ...]
    form: Form
    train: Images
    validation: Images | None
    test: Images | None
    skipped: tuple[tuple[Path, str], ...]  # files that could not be read, and why
    fingerprint: str  # of names and sizes: the same files give the same split

    def counts(self) -> str:
        """Return how many images there are: "600 to train on, 192 to test on"."""
        parts = [f"{len(self.train):,} to train on"]
        for part, verb in ((self.validation, "validate"), (self.test, "test")):
            if part is not None:
                parts.append(f"{len(part):,} to {verb} on")
        return ", ".join(parts)


def load(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    test: float | None = None,
    validation: float = 0,
    color: str | None = None,
    fit: str = "crop",
    seed: int = 0,
    watch: Watch | None = None,
) -> ImageFolder:
    """Read a folder of images and split it.

    Args:
        folder: Holds a folder a class, or `train/` and `test/`.
        size: Rows and columns, or one number for both; by the images if None.
        test: How many to hold out, or their share if below 1; a fifth if None. Not
            for a folder with a `test/`.
        validation: The same, out of those to train on; not with a `validation/`.
        color: "rgb", "rgba" or "grayscale"; by the images if None.
        fit: What happens to other shapes: "crop", "resize" or "pad".
        seed: Another seed holds out other images.
        watch: Called while decoding with the images done and their number.
    """
    listing = find(folder)
    if listing.is_split and TEST in listing.parts and test is not None:
        raise ImagesError(
            f"{listing.folder} has a test/ of its own: leave the number of images to "
            "hold out for testing away."
        )
    form = form_of(listing, size, color, fit)
    read = {
        part: read_files(listed.files, form, watch) for part, listed in _parts(listing)
    }
    skipped = tuple(
        (listing.parts[part].files[number], why)
        for part, decoded in read.items()
        for number, why in sorted(decoded.problems.items())
    )
    _check_classes(listing, read)
    rows, parts = _split(listing, read, {TEST: test, VALIDATION: validation}, seed)
    base = WHOLE if WHOLE in read else TRAIN
    train = _images(listing, base, read[base], rows)
    return ImageFolder(
        listing.folder,
        listing.classes,
        form,
        train,
        parts[VALIDATION],
        parts[TEST],
        skipped,
        fingerprint(listing),
    )


def _split(
    listing: Listing,
    read: dict[str, Decoded],
    wanted: dict[str, float | None],
    seed: int,
) -> tuple[np.ndarray, dict[str, Images | None]]:
    """Return the rows to train on and the parts that are held out.

    A part with its own folder is that folder; others are drawn from the rest.
    """
    base = WHOLE if WHOLE in read else TRAIN
    labels = listing.parts[base].labels[read[base].readable]
    train = np.arange(len(labels))
    parts: dict[str, Images | None] = {}
    for part, count in wanted.items():
        parts[part] = None
        if part in read:
            rows = np.arange(len(read[part].readable))
            parts[part] = _images(listing, part, read[part], rows)
        elif out := held_out(count, len(train)):
            left, chosen = stratified(labels[train], out, seed)
            parts[part] = _images(listing, base, read[base], train[chosen])
            train = train[left]
    return train, parts


def held_out(wanted: float | None, rows: int) -> int:
    """Return how many of some images to hold out: a number, a share, or a fifth.

    >>> held_out(192, 800), held_out(0.25, 800), held_out(None, 800), held_out(0, 800)
    (192, 200, 160, 0)
    """
    wanted = TEST_SHARE if wanted is None else wanted
    if wanted < 0 or (wanted >= 1 and wanted != int(wanted)):
        raise ImagesError(
            f"{wanted} images cannot be held out: give an integer, or a share "
            "between 0 and 1."
        )
    return int(wanted) if wanted >= 1 else round(wanted * rows)


def fingerprint(listing: Listing) -> str:
    """Return a text that identifies the files, independent of where the folder is."""
    total = hashlib.sha256()
    for _, part in _parts(listing):
        for path in part.files:
            name = path.relative_to(listing.folder).as_posix()
            total.update(f"{name} {path.stat().st_size}\n".encode())
    return total.hexdigest()[:32]


def _parts(listing: Listing) -> Iterator[tuple[str, Part]]:
    yield from sorted(listing.parts.items())


def _images(listing: Listing, part: str, decoded: Decoded, rows: np.ndarray) -> Images:
    """Return some of the images of a part that could be read."""
    listed, numbers = listing.parts[part], decoded.readable[rows]
    files = tuple(listed.files[number] for number in numbers)
    return Images(cache.rows(decoded, rows), listed.labels[numbers], files)


def _check_classes(listing: Listing, read: dict[str, Decoded]) -> None:
    """Refuse to continue if no image of a class can be read."""
    for name, decoded in read.items():
        part = listing.parts[name]
        if not len(decoded.readable):
            raise ImagesError(
                f"None of the {len(part.files)} images in {listing.folder} can be "
                f"read; the first is {part.files[0]}: {decoded.problems[0]}."
            )
        known = set(part.labels[decoded.readable].tolist())
        for number, count in Counter(part.labels.tolist()).items():
            if name in (WHOLE, TRAIN) and number not in known:
                at = int(np.argmax(part.labels == number))
                raise ImagesError(
                    f"None of the {count} images of the class "
                    f"{listing.classes[number]!r} can be read; the first is "
                    f"{part.files[at]}: {decoded.problems[at]}."
                )


def form_of(
    listing: Listing, size: int | tuple[int, int] | None, color: str | None, fit: str
) -> Form:
    """Return what to make of the images, by some of them where it is not given."""
    if size is None or color is None:
        sides, modes = _look(listing)
        if size is None:
            middle = float(np.median(sides)) if sides else SIZES[0]
            size = max([side for side in SIZES if side <= middle] or SIZES[:1])
        if color is None:
            is_grey = modes and all(mode in _GREY for mode in modes)
            color = "grayscale" if is_grey else "rgb"
    return Form((size, size) if isinstance(size, int) else size, color, fit)


def _look(listing: Listing) -> tuple[list[int], list[str]]:
    """Return the shorter sides and the modes of some images, all over the folder."""
    files = [path for _, part in _parts(listing) for path in part.files]
    sides, modes = [], []
    with _quiet_pillow():
        for path in files[:: -(-len(files) // LOOKED_AT)]:
            with suppress(Unreadable):
                size, mode = header(path)
                sides.append(min(size))
                modes.append(mode)
    return sides, modes


def read_files(
    files: Sequence[Path], form: Form, watch: Watch | None = None, keep: bool = True
) -> Decoded:
    """Decode files, in parallel; from the cache if they were decoded before.

    Args:
        files: The image files.
        form: What to make of them.
        watch: Called with the images done and their number.
        keep: Whether to look into the cache, and to keep them there.
    """
    pillow()  # explains how to get it, before anything is done
    shape = (len(files), *form.shape)

    def fill(pixels: np.ndarray) -> dict[int, str]:
        return _decode_all(files, form, pixels, watch)

    if not keep:
        return _in_memory(shape, fill)
    key = cache.key_of(files, form)
    decoded = cache.read(key, len(files), form)
    if decoded is not None:
        return decoded
    try:
        with cache.alone(key):
            decoded = cache.read(key, len(files), form)
            return cache.write(key, shape, fill) if decoded is None else decoded
    except OSError as error:
        warnings.warn(
            f"The decoded images could not be kept in {cache.folder()} "
            f"({error.strerror or error}), so they will be decoded again next time. "
            "Set GANGLION_HOME to a folder that can be written to.",
            stacklevel=2,
        )
        return _in_memory(shape, fill)


def _in_memory(
    shape: tuple[int, ...], fill: Callable[[np.ndarray], dict[int, str]]
) -> Decoded:
    pixels = np.empty(shape, "uint8")
    problems = fill(pixels)
    readable = np.array([i for i in range(shape[0]) if i not in problems], "int64")
    return Decoded(pixels[readable] if problems else pixels, readable, problems)


def _decode_all(
    files: Sequence[Path], form: Form, pixels: np.ndarray, watch: Watch | None
) -> dict[int, str]:
    """Decode into the rows of an array; return the numbers of bad files, and why."""

    def decode_file(number: int) -> str:
        try:
            pixels[number] = decode(files[number], form)
        except Unreadable as error:
            return str(error)
        return ""

    from concurrent.futures import ThreadPoolExecutor  # slow to import

    problems: dict[int, str] = {}
    # Pillow works outside of Python's lock, so threads are enough.
    pool = ThreadPoolExecutor(config.threads())
    with _quiet_pillow():
        try:
            for number, problem in enumerate(pool.map(decode_file, range(len(files)))):
                if problem:
                    problems[number] = problem
                if watch is not None:
                    watch(number + 1, len(files))
        finally:
            pool.shutdown(cancel_futures=True)
    return problems


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """Keep warnings about single files (large ones, odd palettes) from the screen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pillow().DecompressionBombWarning)
        warnings.filterwarnings("ignore", module="PIL")
        yield


def batch_for(size: Sequence[int], images: int) -> int:
    """Return how many of some images of so many rows and columns to take at a time.

    More would take memory, not less time.

    >>> batch_for((32, 32), 10_000), batch_for((224, 224), 10_000), batch_for((8, 8), 3)
    (250, 7, 3)
    """
    most = MOST_PIXELS_AT_ONCE // (size[0] * size[1])
    return max(1, min(MOST_AT_ONCE, most, images))
