"""The frame of exports: formats are found, refused, and written whole or not at all."""

import errno
import os
from pathlib import Path

import pytest
from command_line import here

import ganglion as keras
from ganglion import files
from ganglion.export import export_model, formats
from ganglion.export.formats import Artifact, Format


def write_words(model, path, words="", input_signature=None):
    """Write a file of two, the second of which may be in the way."""
    second = path.with_suffix(".second")
    return Artifact({path: words.encode(), second: b"2"}, ("Two files.",))


ROWS = (
    Format(
        "words", (".words",), "Words.", f"{__name__}:write_words",
        options=("words", "input_signature"),
    ),
    Format("bare", (".bare", ".more.words"), "Bare.", f"{__name__}:write_words"),
    Format(
        "far", (".far",), "Far.", "nowhere:none", needs=("no_such_module",),
        extra="far",
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _rows(monkeypatch):
    monkeypatch.setattr(formats, "FORMATS", ROWS)


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])


def test_a_format_is_found_by_its_name_or_by_a_suffix():
    assert formats.find(None, Path("a.words")).name == "words"
    assert formats.find(None, Path("a.more.WORDS")).name == "bare"
    assert formats.find("words", Path("a.bare")).name == "words"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, r"the suffix does not name a format.*\.words \(words\)"),
        ("tf_saved_model", r"of Keras is not written here: .*model\.save\('model"),
        ("openvino", "OpenVINO reads ONNX"),
        ("litert", 'format="c" runs on small devices'),
        ("torch", "torch.export"),
        ("xml", "Unrecognized format='xml': choose words, bare, far"),
    ],
)
def test_a_format_that_is_not_there_says_what_to_use(name, message):
    with pytest.raises(ValueError, match=message):
        formats.find(name, Path("folder"))


def test_export_writes_all_files_and_says_so(model, tmp_path, capsys):
    model.export(tmp_path / "a.words", words="hi")
    assert (tmp_path / "a.words").read_bytes() == b"hi"
    told = capsys.readouterr().out
    assert "a.words (2 bytes)" in told
    assert "a.second (1 bytes)" in told
    assert "Two files." in told
    model.export(tmp_path / "a.words", verbose=False)
    assert not capsys.readouterr().out


def test_all_files_or_none(model, tmp_path):
    (tmp_path / "a.second").mkdir()  # in the way of the second file
    with pytest.raises(OSError, match=r"Cannot export to .*a\.second: it is a folder"):
        export_model(model, tmp_path / "a.words")
    assert [path.name for path in tmp_path.iterdir()] == ["a.second"]


def test_an_export_that_fails_says_where_to(model, tmp_path, monkeypatch):
    def full(contents):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "write_files", full)
    with pytest.raises(OSError, match=r"a\.words: No space .* Nothing was changed"):
        export_model(model, tmp_path / "a.words")


def test_what_cannot_be_meant_is_refused_before_anything_is_written(model, tmp_path):
    path = tmp_path / "a.bare"
    with pytest.raises(ValueError, match=r"'bare' has no option words; .*: none"):
        export_model(model, path, words="hi")
    with pytest.raises(ImportError, match=r"no_such_module.*ganglion-nn\[far\]"):
        export_model(model, tmp_path / "a.far")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        export_model(model, tmp_path / "no" / "a.bare")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        export_model(model, tmp_path, format="bare")
    with pytest.raises(ValueError, match="has no weights yet"):
        export_model(keras.Sequential([keras.layers.Dense(1)]), path)
    assert not list(tmp_path.iterdir())


def test_the_command_exports_and_lists_the_formats(model, tmp_path):
    model.save(tmp_path / "a.keras")
    done = here("export", tmp_path / "a.keras", tmp_path / "a.words")
    assert done.returncode == 0, done.stderr
    assert "a.words (0 bytes)" in done.stderr
    listed = here("export", "--formats").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["words", "bare", "far"]
    refused = here("export", tmp_path / "a.keras", tmp_path / "a.onnxx")
    assert refused.returncode == 1
    assert "the suffix does not name a format" in refused.stderr
