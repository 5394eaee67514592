"""Tiny data sets, a local web server and other stand-ins for the data set tests."""

import dataclasses
import errno
import hashlib
import http.server
import io
import os
import pickle
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ganglion import datasets
from ganglion.datasets import (
    cifar10,
    cifar100,
    decode,
    fashion_mnist,
    keras_files,
    loading,
    mnist,
    sources,
)
from ganglion.datasets.decode import Arrays

SOURCE_ROOT = str(Path(datasets.__file__).parents[2])
posix_only = pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")


def tiny_arrays() -> Arrays:
    images = np.arange(3 * 28 * 28, dtype=np.uint64).reshape(3, 28, 28) % 251
    train = images.astype(np.uint8)
    labels = np.array([5, 0, 4], np.uint8)
    return Arrays(train, labels, train[:2].copy(), labels[:2].copy())


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim])
    return header + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def idx_set(arrays: Arrays) -> dict[str, bytes]:
    return dict(zip(decode.IDX_FILES, map(idx_bytes, arrays), strict=True))


def npz_bytes(arrays: Arrays) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays._asdict())
    return file.getvalue()


def tar_bytes(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return file.getvalue()


def same(left: Arrays, right: Arrays) -> bool:
    return left.sha256() == right.sha256()


Handler = Callable[[http.server.BaseHTTPRequestHandler], None]


class Site:
    """A web server on this machine that answers as a test tells it to."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.answers: dict[str, bytes | Handler] = {}
        site = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                body = site.answers.get(self.path)
                if body is None:
                    self.send_error(404)
                elif isinstance(body, bytes):
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                else:
                    body(self)

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"
        serve = self.server.serve_forever
        threading.Thread(target=serve, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def pickled_lists(rows: list[list[int]], protocol: int = 3) -> bytes:
    """An ``.npy`` file of lists, as NumPy 1 wrote it."""
    array = np.empty(len(rows), object)
    array[:] = rows
    file = io.BytesIO()
    head = {"descr": "|O", "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, head)
    return file.getvalue() + pickle.dumps(array, protocol)


def texts_file(
    parts: dict[str, list[list[int]]], labels: dict[str, list[int]]
) -> bytes:
    """A file of texts as Keras publishes them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in parts.items():
            archive.writestr(f"{name}.npy", pickled_lists(rows))
        for name, numbers in labels.items():
            plain = io.BytesIO()
            np.save(plain, np.array(numbers, np.int64))
            archive.writestr(f"{name}.npy", plain.getvalue())
    return file.getvalue()


def publish(
    monkeypatch: pytest.MonkeyPatch, site: Site, module: Any, data: bytes
) -> None:
    """Let a site of ours publish a file of Keras' with other content."""
    digest = hashlib.sha256(data).hexdigest()
    file = dataclasses.replace(module.FILE, digest=digest)
    old = module.DATA_SET
    shapes = (old.train_shape, old.test_shape)
    monkeypatch.setattr(module, "DATA_SET", file.data_set(old.name, old.title, shapes))
    monkeypatch.setattr(keras_files, "HOST", site.url)
    site.answers[f"/{file.name}"] = data


def web_set(url: str) -> loading.DataSet:
    """A tiny data set whose only source is ``tiny.npz`` below a URL."""
    return loading.DataSet(
        name="tiny",
        title="Tiny",
        train_shape=(3, 28, 28),
        test_shape=(2, 28, 28),
        sha256=tiny_arrays().sha256(),
        sources=lambda: [
            sources.web(
                url, "tiny.npz", lambda read: decode.npz(io.BytesIO(read("tiny.npz")))
            )
        ],
        by_hand=lambda: "  put tiny.npz somewhere",
    )


def use_home(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """An empty cache, and no proxy between the tests and their local server."""
    monkeypatch.setenv("GANGLION_HOME", str(home))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return home


def go_offline(monkeypatch: pytest.MonkeyPatch, empty: Path) -> None:
    """No network, no npm, no apt, no installed package; and tiny data sets."""
    monkeypatch.setenv("PATH", str(empty))
    for module in (mnist, fashion_mnist, cifar10):
        monkeypatch.setattr(module, "HOST", "http://127.0.0.1:9/")
        expected = dataclasses.replace(module.DATA_SET, sha256=tiny_arrays().sha256())
        monkeypatch.setattr(module, "DATA_SET", expected)
    for module in (keras_files, cifar100):
        monkeypatch.setattr(module, "HOST", "http://127.0.0.1:9/")
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", "nowhere/fashion-mnist")


def run_python(script: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": SOURCE_ROOT}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def place(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True)
    for name, body in files.items():
        (folder / name).write_bytes(body)


def read_only(source: object, target: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")
