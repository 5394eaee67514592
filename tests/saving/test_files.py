"""The one writer, the one lock, and what may be opened at all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from saving_models import small

import ganglion
from ganglion import files, saving

posix_only = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
SPECIAL = r"it is a (pipe|device|socket)"
SOURCE = str(Path(ganglion.__file__).parents[1])


def test_content_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    """The file and its folder: or a power cut leaves an empty file."""
    done = []

    def noted(name):
        function = getattr(os, name)

        def call(*args):
            if name == "fsync":
                done.append((name, os.readlink(f"/proc/self/fd/{args[0]}")))
            else:
                done.append((name, str(args[1])))
            return function(*args)

        monkeypatch.setattr(files.os, name, call)

    if not Path("/proc/self/fd").exists():
        pytest.skip("cannot see which file is meant")
    noted("fsync")
    noted("replace")
    path = tmp_path / "x"
    files.write_file(path, b"content")
    assert [name for name, _ in done] == ["fsync", "replace", "fsync"]
    assert done[0][1].endswith(".part")
    assert done[1][1] == str(path)
    assert done[2][1] == str(tmp_path)


@posix_only
def test_a_backup_s_index_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    flushed = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: (flushed.append("fsync"), fsync(descriptor))
    )
    monkeypatch.setattr(
        os,
        "replace",
        lambda old, new: (flushed.append(Path(new).name), replace(old, new)),
    )
    backup = ganglion.callbacks.BackupAndRestore(tmp_path)
    model = small()
    model.compile("sgd", "mse")
    backup.set_model(model)
    backup.on_epoch_end(0)
    at = flushed.index("training_metadata.json")
    assert flushed[at - 1] == "fsync"


def killed_while_saving(path: Path, kind: str) -> None:
    """Kill a process in the middle of a save."""
    script = f"""
import os, signal
from ganglion import files, saving
import ganglion as keras
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
if {kind!r} == "keras":
    model.save({str(path)!r})
elif {kind!r} == "weights":
    model.save_weights({str(path)!r})
else:
    saving.save_checkpoint({str(path)!r}, model)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": SOURCE}
    )
    assert ended.returncode == -signal.SIGKILL


@posix_only
@pytest.mark.parametrize(
    ("kind", "name"),
    [("keras", "m.keras"), ("weights", "m.weights.h5"), ("checkpoint", "m.c")],
)
def test_the_next_save_clears_what_a_killed_one_left(tmp_path, kind, name):
    path = tmp_path / name
    killed_while_saving(path, kind)
    (leftover,) = os.listdir(tmp_path)
    assert leftover.endswith(".part")
    small().save(tmp_path / "other.keras")
    assert os.listdir(tmp_path) == ["other.keras"]


def test_leftovers_of_older_versions_and_foreign_files(tmp_path):
    for name in (".m.keras.123.part", ".m.keras.9-88.part", ".m.keras.1.ab12cd34.part"):
        (tmp_path / name).write_bytes(b"half")
    foreign = [".film.part", "m.keras.part", ".m.keras.swp", ".x.part.txt"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"somebody else's")
    small().save(tmp_path / "m.keras")
    assert sorted(os.listdir(tmp_path)) == sorted([*foreign, "m.keras"])


def test_a_file_that_is_not_locked_yet_is_not_taken_for_abandoned(tmp_path):
    """Threads change places between the opening of a file and its lock."""
    errors: list[BaseException] = []
    before = sys.getswitchinterval()

    def write(number: int) -> None:
        try:
            for _ in range(30):
                files.write_file(tmp_path / f"file{number % 2}", b"content")
                with files.new_folder(tmp_path / f"folder{number}") as part:
                    (part / "a").write_bytes(b"content")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors


def test_writers_at_work_do_not_clear_each_other(tmp_path):
    """Many at once into one folder, each long enough to be in the others' way."""
    errors: list[BaseException] = []

    def write(number: int) -> None:
        def fill(file):
            file.write(bytes([number]) * 1000)
            barrier.wait(30)
            file.write(bytes([number]) * 1000)

        try:
            files.write_file(tmp_path / f"same{number % 2}", fill)
        except BaseException as error:
            errors.append(error)

    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(os.listdir(tmp_path)) == ["same0", "same1"]
    for name in ("same0", "same1"):
        content = (tmp_path / name).read_bytes()
        assert len(content) == 2000
        assert len(set(content)) == 1


@pytest.mark.parametrize("is_there", [False, True])
def test_of_several_files_all_are_written_or_none(tmp_path, is_there):
    first, second = tmp_path / "a", tmp_path / "b"
    if is_there:
        files.write_files({first: b"old", second: b"old"})

    def fail(file):
        file.write(b"half")
        raise OSError("the disk is full")

    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError, match="the disk is full"):
        files.write_files({first: b"new", second: fail})
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    files.write_files({first: b"new", second: b"new"})
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"new"}


def test_of_two_new_folders_the_last_one_stays(tmp_path, monkeypatch):
    """Another process may put its own there just before this one is renamed."""
    place, replace, others = tmp_path / "new", os.replace, [b"first", b"second"]

    def replace_late(part, target):
        if others:
            target.mkdir()
            (target / "other").write_bytes(others.pop())
        replace(part, target)

    monkeypatch.setattr(os, "replace", replace_late)
    with files.new_folder(place) as part:
        (part / "own").write_bytes(b"own")
    assert (os.listdir(tmp_path), os.listdir(place)) == (["new"], ["own"])


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path):
    place = tmp_path / "new"

    def fill(fails: bool) -> None:
        with files.new_folder(place) as part:
            (part / "a").write_bytes(b"a")
            assert not place.exists()
            if fails:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(fails=True)
    assert os.listdir(tmp_path) == []
    fill(fails=False)
    assert os.listdir(place) == ["a"]
    abandoned = tmp_path / f".old.{os.getpid()}.deadbeef.part"
    abandoned.mkdir()
    files.clear_leftovers(tmp_path)
    assert os.listdir(tmp_path) == ["new"]


# ---- what is no file -----------------------------------------------------------------


@pytest.fixture
def special(tmp_path):
    """Return what might never end when read: by name."""
    os.mkfifo(tmp_path / "pipe.keras")
    (tmp_path / "link.keras").symlink_to("/dev/zero")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    yield [
        tmp_path / "pipe.keras",
        tmp_path / "link.keras",
        tmp_path / "s",
        "/dev/zero",
    ]
    listener.close()


@posix_only
def test_pipes_and_devices_are_no_models(special):
    model = small()
    for path in special:
        for load in (
            saving.load_model,
            model.load_weights,
            lambda path: saving.load_checkpoint(path, model),
        ):
            with pytest.raises(ValueError, match=SPECIAL):
                load(path)
        with pytest.raises(ValueError, match=SPECIAL):
            files.write_file(path, b"")


@posix_only
def test_pipes_and_devices_are_no_pytorch_files(special):
    from ganglion.saving.torch_file import read_state_dict

    for path in special:
        with pytest.raises(ValueError, match=SPECIAL):
            read_state_dict(path)


@posix_only
def test_pipes_and_devices_are_no_images(special, tmp_path):
    from ganglion.images import decoding

    for path in special:
        with pytest.raises(ValueError, match=SPECIAL):
            ganglion.utils.load_img(path)
        with pytest.raises(decoding.Unreadable, match=SPECIAL):
            decoding.decode(path, decoding.Form((4, 4)))


def test_a_clock_before_1980(tmp_path, monkeypatch):
    import time

    local = time.struct_time((1971, 1, 1, 0, 0, 0, 4, 1, 0))
    monkeypatch.setattr(time, "localtime", lambda *_: local)
    monkeypatch.setattr(time, "time", lambda: 3.0e7)
    small().save(tmp_path / "m.keras")
    monkeypatch.undo()
    saving.load_model(tmp_path / "m.keras")


def test_a_lock_is_held_by_one_at_a_time_and_leaves_nothing(tmp_path):
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(5):
            with files.locked(tmp_path / "x"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    files.LOCK_POLL_SECONDS, before = 0.001, files.LOCK_POLL_SECONDS
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        files.LOCK_POLL_SECONDS = before
    assert most == [1]
    assert os.listdir(tmp_path) == []
