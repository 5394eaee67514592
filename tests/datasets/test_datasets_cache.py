"""The cache: whole files or none, damage found, one fetch at a time."""

import errno
import http.server
import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from datasets_fakes import (
    SOURCE_ROOT,
    Site,
    npz_bytes,
    posix_only,
    run_python,
    same,
    tiny_arrays,
    web_set,
)

from ganglion import datasets
from ganglion.datasets import loading, mnist
from ganglion.datasets.decode import Arrays
from ganglion.files import locked

# The cache folder ---------------------------------------------------------------------


def test_home_overrides_the_cache_folder(home: Path) -> None:
    assert loading.folder() == home / "datasets"


def test_without_home_the_users_cache_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGLION_HOME", "")
    assert "ganglion" in str(loading.folder())


def test_what_is_written_is_read_back(home: Path) -> None:
    path = home / "datasets" / "tiny.npz"
    loading.write_cached(path, tiny_arrays())
    kept = loading.read_cached(path, tiny_arrays().sha256())
    assert kept is not None
    assert same(kept, tiny_arrays())
    assert [file.name for file in path.parent.iterdir()] == ["tiny.npz"]


def test_the_checksum_covers_shape_and_name() -> None:
    arrays = tiny_arrays()
    flat = arrays._replace(x_train=arrays.x_train.reshape(3, 784))
    swapped = arrays._replace(x_test=arrays.x_train, x_train=arrays.x_test)
    assert len({arrays.sha256(), flat.sha256(), swapped.sha256()}) == 3


def test_a_failed_write_leaves_the_old_file_and_no_litter(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "datasets" / "tiny.npz"
    loading.write_cached(path, tiny_arrays())

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        loading.write_cached(path, tiny_arrays()._replace(y_test=np.zeros(2, np.uint8)))
    kept = loading.read_cached(path, tiny_arrays().sha256())
    assert kept is not None
    assert same(kept, tiny_arrays())
    assert [file.name for file in path.parent.iterdir()] == ["tiny.npz"]


@posix_only
def test_a_disk_that_fills_up_half_way_loses_nothing(home: Path) -> None:
    path = home / "datasets" / "tiny.npz"
    loading.write_cached(path, tiny_arrays())
    script = f"""
import resource, numpy as np
from pathlib import Path
from ganglion.datasets import loading
from ganglion.datasets.decode import Arrays
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
big = np.zeros((9, 28, 28), np.uint8)
try:
    loading.write_cached(Path({str(path)!r}), Arrays(big, big, big, big))
except OSError as error:
    print("refused:", error.strerror)
"""
    assert "refused: File too large" in run_python(script).stdout
    assert loading.read_cached(path, tiny_arrays().sha256()) is not None
    assert [file.name for file in path.parent.iterdir()] == ["tiny.npz"]


def test_a_killed_writer_s_leftovers_are_cleared(home: Path) -> None:
    path = home / "datasets" / "tiny.npz"
    path.parent.mkdir(parents=True)
    (path.parent / ".tiny.npz.123-456.part").write_bytes(b"half")
    loading.write_cached(path, tiny_arrays())
    assert [file.name for file in path.parent.iterdir()] == ["tiny.npz"]


# Damaged files ------------------------------------------------------------------------


def spoil_cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def spoil_flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def spoil_other_data(content: bytes) -> bytes:
    return npz_bytes(tiny_arrays()._replace(y_test=np.array([1, 1], np.uint8)))


def spoil_pickle(content: bytes) -> bytes:
    file = io.BytesIO()
    np.savez(file, x_train=np.array([{}], dtype=object))
    return file.getvalue()


def spoil_bare_array(content: bytes) -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


SPOILERS = [
    spoil_cut,
    spoil_flip,
    spoil_other_data,
    spoil_pickle,
    spoil_bare_array,
    lambda content: b"",
    lambda content: b"<html>Please sign in</html>",
]


@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_damaged_file_is_named_and_fetched_again(
    site: Site, spoil: Callable[[bytes], bytes]
) -> None:
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    data_set = web_set(site.url)
    data_set.path.parent.mkdir(parents=True)
    data_set.path.write_bytes(spoil(npz_bytes(tiny_arrays())))
    with pytest.warns(UserWarning, match="damaged: .*; fetching it again") as caught:
        assert same(loading.load(data_set), tiny_arrays())
    assert str(data_set.path) in str(caught[0].message)
    assert loading.read_cached(data_set.path, data_set.sha256) is not None


def test_a_damaged_file_that_cannot_be_replaced_is_in_the_error() -> None:
    data_set = web_set("http://127.0.0.1:9/")
    data_set.path.parent.mkdir(parents=True)
    data_set.path.write_bytes(b"junk")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(datasets.DataUnavailable) as caught,
    ):
        loading.load(data_set)
    assert f"- {data_set.path}: damaged: " in str(caught.value)
    assert data_set.path.read_bytes() == b"junk"


def test_a_file_the_caller_named_is_never_overwritten(
    tmp_path: Path, offline: None
) -> None:
    mine = tmp_path / "mine.npz"
    mine.write_bytes(b"my own work")
    with pytest.raises(
        ValueError, match=r"mine\.npz is not MNIST .*move this one away"
    ):
        mnist.load_data(str(mine))
    assert mine.read_bytes() == b"my own work"


def test_an_absolute_path_is_read_as_in_keras(tmp_path: Path, offline: None) -> None:
    elsewhere = tmp_path / "elsewhere.npz"
    elsewhere.write_bytes(npz_bytes(tiny_arrays()))
    assert same(Arrays(*sum(mnist.load_data(str(elsewhere)), ())), tiny_arrays())


# Two at once --------------------------------------------------------------------------

FETCH_TINY = """
import io
from ganglion.datasets import decode, loading, sources
def tiny(read):
    return decode.npz(io.BytesIO(read("tiny.npz")))
data_set = loading.DataSet("tiny", "Tiny", (3, 28, 28), (2, 28, 28), {sha256!r},
    lambda: [sources.web({url!r}, "tiny.npz", tiny)], str)
print(loading.load(data_set).sha256())
"""


def test_two_processes_fetch_once(site: Site) -> None:
    body = npz_bytes(tiny_arrays())

    def slowly(handler: http.server.BaseHTTPRequestHandler) -> None:
        time.sleep(1.5)
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(body)

    site.answers["/tiny.npz"] = slowly
    script = FETCH_TINY.format(sha256=tiny_arrays().sha256(), url=site.url)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(run_python(script)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [r.stdout.strip() for r in results] == [tiny_arrays().sha256()] * 3
    assert site.requests == ["/tiny.npz"]
    waited = [r for r in results if "another process is fetching tiny.npz" in r.stderr]
    assert len(waited) == 2


@posix_only
def test_a_killed_holder_does_not_block_the_next(site: Site) -> None:
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    data_set = web_set(site.url)
    script = f"""
import time
from pathlib import Path
from ganglion.files import locked
with locked(Path({str(data_set.path)!r}), lambda: None):
    print("held", flush=True)
    time.sleep(60)
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": SOURCE_ROOT},
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    waited: list[bool] = []

    def kill_the_holder() -> None:
        waited.append(True)
        holder.send_signal(signal.SIGKILL)

    with locked(data_set.path, kill_the_holder):
        assert waited == [True]
    holder.wait()
    holder.stdout.close()
    assert same(loading.load(data_set), tiny_arrays())
