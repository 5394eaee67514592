"""Files from the web: checked, cached, and safely unpacked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from ganglion import config, files
from ganglion.progress import print_message
from ganglion.system import budget

_FREE_ON_DISK, _MOST_EXPANSION = 4 << 30, 100  # of what is unpacked
_ALGORITHM_OF_LENGTH = {32: "md5", 64: "sha256"}  # of hexadecimal digits


def get_file(
    fname: str | os.PathLike[str] | None = None,
    origin: str | None = None,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | None = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    force_download: bool = False,
) -> str:
    """Fetch a file once, and return its path.

    A file that was fetched before is used again, if its checksum still fits.

    Args:
        fname: Name to keep it under; by default, the last part of the address.
        origin: Address: http, https or file.
        untar: Whether to unpack a tar file (older spelling of `extract`).
        md5_hash: Expected MD5 sum (older spelling of `file_hash`).
        file_hash: Expected SHA-256 or MD5 sum, in hexadecimal digits.
        cache_subdir: Folder below the cache.
        hash_algorithm: "sha256", "md5", or "auto" to go by the length.
        extract: Whether to unpack a tar or zip file; the path returned is the folder's.
        archive_format: "tar", "zip", or "auto" to go by the content.
        cache_dir: The cache; by default, ``GANGLION_HOME`` or the user's.
        force_download: Whether to fetch the file even if it is in the cache.
    """
    if origin is None:
        raise ValueError("`get_file` needs the address of the file: pass `origin`.")
    name = unpacked_name = _name(fname, origin)
    # Apart from the data sets of `ganglion.datasets`, which have their own format.
    cache = config.home() / "files" if cache_dir is None else Path(cache_dir)
    folder = cache.expanduser() / cache_subdir
    expected = file_hash or md5_hash
    algorithm = "md5" if md5_hash and not file_hash else hash_algorithm
    is_archive = extract or untar
    if is_archive and fname and "." in name:
        unpacked_name = f"{name.split('.')[0]}_extracted"
    elif is_archive:
        name = f"{name}_archive"
    path, unpacked = folder / name, folder / unpacked_name
    fetched = force_download or not _is_sound(path, expected, algorithm)
    if fetched:
        _fetch(origin, path, expected, algorithm)
    if not is_archive:
        return str(path)
    if fetched or not unpacked.is_dir():
        _unpack(path, unpacked, "tar" if untar else archive_format)
    return str(unpacked)


def _name(fname: str | os.PathLike[str] | None, origin: str) -> str:
    name = os.fspath(fname) if fname else PurePosixPath(urlsplit(origin).path).name
    if not name or name in (".", ".."):
        raise ValueError(f"{origin!r} names no file: pass `fname`.")
    if "/" in name or os.sep in name:
        raise ValueError(
            f"`fname` is a name, not a path: {name!r}. Choose the folder with "
            "`cache_dir` and `cache_subdir`."
        )
    return name


def _is_sound(path: Path, expected: str | None, algorithm: str) -> bool:
    if not path.is_file():
        return False
    if expected is None or _has_hash(path.read_bytes(), expected, algorithm):
        return True
    print_message(f"{path} does not have the expected checksum; fetching it again.")
    return False


def _has_hash(data: bytes, expected: str, algorithm: str) -> bool:
    if algorithm == "auto":
        algorithm = _ALGORITHM_OF_LENGTH.get(len(expected), "")
    if algorithm not in _ALGORITHM_OF_LENGTH.values():
        raise ValueError(
            "The checksum must be SHA-256 (64 hexadecimal digits) or MD5 (32), with "
            "`hash_algorithm` 'auto', 'sha256' or 'md5'."
        )
    digest = hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()
    return digest == expected.lower()


def _fetch(origin: str, path: Path, expected: str | None, algorithm: str) -> None:
    print_message(f"Downloading data from {origin}")
    data = _read(origin)
    if expected is not None and not _has_hash(data, expected, algorithm):
        raise ValueError(
            f"Incomplete or corrupted file detected: the checksum of {origin} is not "
            f"{expected}. Or it has changed, and another checksum is right."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, data)


def _read(origin: str) -> bytes:
    parts = urlsplit(origin)
    if parts.scheme == "file":
        from urllib.request import url2pathname  # 30 ms that few ever need

        return files.read_file(url2pathname(parts.path))
    if parts.scheme not in ("http", "https"):
        raise ValueError(
            f"`origin` must be an http, https or file address, not {origin!r}."
        )
    from ganglion.datasets.download import SourceError, download, fetching

    try:
        with fetching() as report:
            return download(origin, report)
    except SourceError as error:
        raise OSError(f"{origin} could not be fetched: {error}.") from error


def _unpack(path: Path, folder: Path, kind: str | None) -> None:
    import tarfile  # with zipfile 10 ms that few ever need
    import zipfile

    size = path.stat().st_size
    with (
        budget.reading(size, _FREE_ON_DISK, _MOST_EXPANSION),
        files.new_folder(folder) as part,
    ):
        if kind in ("auto", "zip") and zipfile.is_zipfile(path):
            _unpack_zip(path, part)
        elif kind in ("auto", "tar") and tarfile.is_tarfile(path):
            _unpack_tar(path, part)
        else:
            kinds = "zip or tar" if kind == "auto" else kind
            raise ValueError(
                f"{path.name} cannot be unpacked: it is not a {kinds} file."
            )


def _unpack_zip(path: Path, folder: Path) -> None:
    import zipfile

    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            _check_member(info.filename, info.file_size, path)
        archive.extractall(folder)


def _unpack_tar(path: Path, folder: Path) -> None:
    import tarfile

    with tarfile.open(path) as archive:
        for member in archive:
            _check_member(member.name, member.size, path)
            if not (member.isfile() or member.isdir()):
                raise ValueError(
                    f"{path.name} holds {member.name!r}, which is neither a file nor a "
                    "folder: unpack it by hand if you trust it."
                )
            member.uid = member.gid = 0
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
        else:
            archive.extractall(folder)


def _check_member(name: str, size: int, path: Path) -> None:
    budget.take(size, f"its member {name!r:.80}")
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts:
        raise ValueError(
            f"{path.name} holds {name!r}, which leads out of its folder; not unpacked."
        )
