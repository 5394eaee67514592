"""Files that are damaged or hostile end in one clear error that names them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saving_models import small

import ganglion as keras
from ganglion import saving

h5py = pytest.importorskip("h5py")


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "m.keras"
    small().save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, **changed: bytes | None) -> Path:
    """Write the archive again with other members (config, weights)."""
    names = {"config": "config.json", "weights": "model.weights.h5"}
    parts = members(path)
    for short, content in changed.items():
        del parts[names[short]]
        if content is not None:
            parts[names[short]] = content
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def refused(path: Path, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern) as error:
        saving.load_model(path)
    assert path.name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    for load in (saving.load_model, small().load_weights):
        with pytest.raises(FileNotFoundError, match=r"no file .*gone\.keras"):
            load(tmp_path / "gone.keras")
    with pytest.raises(ValueError, match="is a folder"):
        saving.load_model(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive(good, share):
    content = good.read_bytes()
    good.write_bytes(content[: int(len(content) * share)])
    refused(good, "not a `.keras` archive, or is damaged or cut short")


def test_single_damaged_bytes_never_pass_in_silence(good):
    """Whatever byte is damaged: a ValueError, or the same model."""
    content = good.read_bytes()
    expected = saving.load_model(good).get_weights()
    for place in np.random.default_rng(0).integers(0, len(content), 60):
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        good.write_bytes(bytes(damaged))
        with contextlib.suppress(ValueError):
            arrays = saving.load_model(good).get_weights()
            for first, other in zip(arrays, expected, strict=True):
                np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_truncated_weights(tmp_path, share):
    path = tmp_path / "m.weights.h5"
    model = small()
    model.save_weights(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(ValueError, match=r"m\.weights\.h5.*cut short"):
        model.load_weights(path)
    with pytest.raises(ValueError, match=r"m\.weights\.h5.*cut short"):
        saving.load_checkpoint(path, model)


def test_text_is_no_archive(tmp_path):
    (tmp_path / "m.keras").write_text("a page of a web site")
    refused(tmp_path / "m.keras", "not a `.keras` archive")


def test_weights_are_no_model(tmp_path):
    small().save_weights(tmp_path / "m.weights.h5")
    refused(tmp_path / "m.weights.h5", "weights but no model.*load_weights")


def test_missing_members(good):
    content = good.read_bytes()
    refused(rewritten(good, config=None), "no member 'config.json'")
    good.write_bytes(content)
    refused(rewritten(good, weights=None), "no member 'model.weights.h5'")


@pytest.mark.parametrize(
    "name", ["/etc/cron.d/evil", "../evil", "a/../../evil", "..\\evil", "C:\\evil"]
)
def test_names_that_point_out_of_the_archive(good, name):
    with zipfile.ZipFile(good, "a") as archive:
        archive.writestr(name, "evil")
    refused(good, "points out of it: refused")
    assert sorted(os.listdir(good.parent)) == ["m.keras"]


def test_two_members_of_one_name(good):
    with (
        zipfile.ZipFile(good, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("config.json", "{}")
    refused(good, "two members of the same name")


def test_zip_bombs(good):
    parts = members(good)
    for name in ("config.json", "model.weights.h5"):
        with zipfile.ZipFile(good, "w", zipfile.ZIP_DEFLATED) as archive:
            for part_name, content in parts.items():
                with archive.open(part_name, "w") as member:
                    if part_name != name:
                        member.write(content)
                        continue
                    for _ in range(65):
                        member.write(bytes(1 << 20))
        assert good.stat().st_size < 1 << 20
        refused(good, f"'{name}' claims 68,157,440 bytes.*decompression bomb")


def test_a_member_that_is_longer_than_it_declares(good):
    content = bytearray(good.read_bytes())
    size = len(members(good)["config.json"])
    where = content.rindex(b"PK\x01\x02", 0, content.rindex(b"config.json"))
    content[where + 24 : where + 28] = (size - 50).to_bytes(4, "little")
    good.write_bytes(bytes(content))
    refused(good, "damaged or cut short|not valid JSON")


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("\xff", "not valid JSON"),
        ("[]", "describes no model"),
        ('"model"', "describes no model"),
        ('{"class_name": "Sequential"}', "no `config`"),
        ('{"class_name": "Sequential", "config": 5}', "no `config`"),
        ('{"class_name": "Sequential", "config": {}}', "weights do not fit"),
        (
            '{"class_name": "Sequential", "config": {"name": "s", "layers": 3}}',
            "not valid",
        ),
        (
            '{"class_name": "Sequential", "config": {"name": "s", "layers": [3]}}',
            "not valid|.config. key",
        ),
        ('{"class_name": ["Sequential"], "config": {}}', "not valid|Unknown"),
        ('{"class_name": "Dense", "config": {"units": 2}}', "a Dense, not a model"),
        ('{"class_name": "Sequental", "config": {}}', "Unknown .*Sequential"),
        (
            '{"module": "os", "class_name": "function", "config": "system", '
            '"registered_name": "system"}',
            "no `config`|Unknown object 'system'",
        ),
        ('{"module": "os", "class_name": "system", "config": {}}', "Unknown object"),
    ],
)
def test_configurations_of_the_wrong_shape(good, text, pattern):
    refused(rewritten(good, config=text.encode("latin-1")), pattern)


def edited(path: Path, edit: Any) -> Path:
    config = json.loads(members(path)["config.json"])
    edit(config)
    return rewritten(path, config=json.dumps(config).encode())


def test_unknown_layers_and_arguments_are_named(good):
    content = good.read_bytes()

    def misspell(config: Any) -> None:
        config["config"]["layers"][1]["class_name"] = "Dens"

    refused(edited(good, misspell), "Unknown object 'Dens'.*Dense")
    good.write_bytes(content)

    def add(config: Any) -> None:
        config["config"]["layers"][1]["config"]["colour"] = "red"

    refused(edited(good, add), "colour")


def test_a_module_named_in_a_file_is_never_imported(good, tmp_path, monkeypatch):
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))

    def name(config: Any) -> None:
        layer = config["config"]["layers"][1]
        layer.update(module="evil_module", class_name="Evil", registered_name="Evil")

    refused(edited(good, name), "Unknown object 'Evil'.*evil_module")
    assert "evil_module" not in sys.modules


def test_code_in_a_file_is_never_executed(good):
    def add_code(config: Any) -> None:
        config["config"]["layers"][1]["config"]["activation"] = {
            "class_name": "__lambda__",
            "config": {"value": ["4wEAAAAA", None, None]},
        }

    edited(good, add_code)
    refused(good, "lambda.*never executes")
    with pytest.raises(ValueError, match="never executes"):
        saving.load_model(good, safe_mode=False)


def test_sizes_that_do_not_exist_cost_no_memory(good):
    def enlarge(config: Any) -> None:
        config["config"]["layers"][2]["config"]["units"] = 10**9

    # 12 GB of weights and as much for each slot, if they were made.
    wanted = r"expected shape \(3, 1000000000\), and for more than"
    refused(edited(good, enlarge), wanted)


def tampered(path: Path, change: Any) -> Path:
    buffer = io.BytesIO(members(path)["model.weights.h5"])
    with h5py.File(buffer, "r+") as file:
        change(file)
    return rewritten(path, weights=buffer.getvalue())


KERNEL = "layers/dense/vars/0"


def replaced(make: Any) -> Any:
    def change(file: Any) -> None:
        del file[KERNEL]
        make(file)

    return change


def bomb(file: Any) -> None:
    file.create_dataset(
        KERNEL, (1 << 20, 1 << 20), "f4", chunks=(1024, 1024), compression="gzip"
    )


def loop(file: Any) -> None:
    file["layers/again"] = file["layers"]


def external_data(file: Any) -> None:
    file.create_dataset(KERNEL, (4, 3), "f4", external=[("/etc/passwd", 0, 48)])


def virtual_data(file: Any) -> None:
    layout = h5py.VirtualLayout((4, 3), "f4")
    layout[:] = h5py.VirtualSource("/etc/passwd", "x", (4, 3))
    file.create_virtual_dataset(KERNEL, layout)


def objects(file: Any) -> None:
    text = h5py.string_dtype()
    file.create_dataset(KERNEL, (4, 3), text)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (replaced(lambda f: f.__setitem__(KERNEL, h5py.SoftLink("/vars"))), "a link"),
        (
            replaced(
                lambda f: f.__setitem__(KERNEL, h5py.ExternalLink("/etc/passwd", "x"))
            ),
            "a link to elsewhere",
        ),
        (replaced(external_data), "in another file"),
        (replaced(virtual_data), "in another file"),
        (replaced(objects), "not numbers"),
        (replaced(lambda f: f.create_dataset(KERNEL, data=[b"ab"])), "not numbers"),
        (replaced(bomb), "decompression bomb"),
        (replaced(lambda f: f.create_group(KERNEL)), "not valid|found"),
        (replaced(lambda f: None), "expected 2 variables.*received 1 variables"),
        (loop, "contains itself"),
    ],
    ids=[
        "soft link",
        "external link",
        "external data",
        "virtual data",
        "text",
        "bytes",
        "bomb",
        "group",
        "missing",
        "loop",
    ],
)
def test_hostile_weights(good, change, pattern):
    refused(tampered(good, change), pattern)


def test_a_training_state_of_the_wrong_shape(good):
    def change(file: Any) -> None:
        del file["ganglion/order"]
        file["ganglion/order"] = np.zeros(7)

    refused(tampered(good, change), "ganglion/order.*shape")


def test_pickles_are_neither_written_nor_read(good, tmp_path):
    assert b"pickle" not in good.read_bytes()
    path = tmp_path / "p.keras"
    with path.open("wb") as file:
        np.save(file, np.array([print], dtype=object), allow_pickle=True)
    refused(path, "not a `.keras` archive")


def test_single_damaged_bytes_of_a_weights_file_never_pass_in_silence(tmp_path):
    path = tmp_path / "c"
    model = small()
    saving.save_checkpoint(path, model)
    content, expected = path.read_bytes(), model.get_weights()
    kernel = content.index(expected[0].tobytes())
    places = np.random.default_rng(0).integers(0, len(content), 60)
    for place in [kernel, *places]:
        damaged = bytearray(content)
        damaged[place] ^= 0xFF
        path.write_bytes(bytes(damaged))
        try:
            saving.load_checkpoint(path, model)
        except ValueError:
            continue
        assert place != kernel
        for first, other in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize(
    ("suffix", "reason"),
    [
        ("safetensors", "does not begin as one of safetensors does"),
        ("pt", "does not start as such a file does"),
        ("onnx", "more than the 2 GB"),
    ],
)
def test_a_huge_file_is_refused_by_its_beginning(tmp_path, suffix, reason):
    path = tmp_path / f"huge.{suffix}"
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    if suffix == "onnx":
        pytest.importorskip("onnx")
    with pytest.raises(ValueError, match=f"huge.*{reason}"):
        keras.load_onnx(path) if suffix == "onnx" else small().load_weights(path)


def test_a_name_twice_among_many_is_found_at_once(tmp_path):
    names = ",".join(f'"{number}":0' for number in range(300_000))
    header = f'{{{names},"299999":0}}'.encode()
    path = tmp_path / "many.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="'299999' twice"):
        small().load_weights(path)
