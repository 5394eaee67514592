"""Every kind of file that Ganglion reads: how one is made, damaged and read."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import struct
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import fuzz_mutations as mutations
import h5py
import numpy as np
from datasets_fakes import texts_file
from layer_cases import CASES

import ganglion as keras
from ganglion import config, layers, many, saving
from ganglion.applications import feature_cache
from ganglion.compiler import cache as cpu_cache
from ganglion.compiler.cpu import backend
from ganglion.datasets import (
    decode,
    keras_files,
    loading,
    reuters,
    sequences,
    sources,
)
from ganglion.datasets.decode import Arrays
from ganglion.datasets.download import Report
from ganglion.images import Form, cache, decoding
from ganglion.race import results
from ganglion.saving import pickling, torch_file
from ganglion.utils.text import Tokenizer, tokenizer_from_json

Rng = np.random.Generator


@dataclass
class Kind:
    """A kind of file.

    `read` gets the damaged file; what it raises beyond `allowed` is a finding. `state`
    tells what must stay as it is when reading fails.
    """

    name: str
    content: bytes
    file: str
    change: Callable[[bytes, Rng], bytes]
    read: Callable[[Path], Any]
    state: Callable[[], Any] = lambda: None


def sequential() -> Any:
    model = keras.Sequential(
        [
            keras.Input((6, 6, 1)),
            layers.Conv2D(2, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            layers.Dropout(0.2),
            layers.Flatten(),
            layers.Dense(3, activation="softmax", kernel_regularizer="l2"),
        ],
        name="fuzzed",
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    x = np.random.default_rng(0).random((12, 6, 6, 1)).astype("float32")
    model.fit(x, np.arange(12) % 3, batch_size=4, verbose=0)
    model.notes = {"class_names": ["a", "b", "c"]}
    return model


def functional() -> Any:
    x = keras.Input((4,), name="in")
    shared = layers.Dense(4, name="shared")
    both = layers.Concatenate(name="both")([shared(x), shared(shared(x)) * 2.0])
    nested = keras.Sequential([keras.Input((8,)), layers.Dense(2)], name="nested")
    model = keras.Model(x, {"a": nested(both), "b": layers.Dense(1, name="b")(both)})
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    model.compile(
        keras.optimizers.SGD(schedule, momentum=0.9), {"a": "mse", "b": "huber"}
    )
    return model


def _changed_h5_texts(data: bytes, rng: Rng) -> bytes:
    """Change the JSON in the attributes of Keras 2's files, or any byte."""
    if rng.random() < 0.4:
        return mutations.damaged(data, rng)
    buffer = io.BytesIO(data)
    with h5py.File(buffer, "r+") as file:
        name = "model_config" if rng.random() < 0.8 else "training_config"
        text = file.attrs[name]
        raw = text if isinstance(text, bytes) else text.encode()
        file.attrs[name] = np.bytes_(mutations.changed_json(raw, rng)[:60_000])
    return buffer.getvalue()


def _archive(data: bytes, rng: Rng) -> bytes:
    if rng.random() < 0.15:
        return mutations.damaged(data, rng)
    changes = {
        "config.json": mutations.changed_json,
        ".h5": mutations.damaged,
        "metadata.json": mutations.changed_json,
    }
    if rng.random() < 0.6:
        changes = {"config.json": mutations.changed_json}
    return mutations.changed_member(data, rng, changes)


def of_words() -> Any:
    words = layers.TextVectorization(output_mode="tf_idf", ngrams=2)
    words.adapt(["the cat", "the dog", "Émile"])
    return keras.Sequential([keras.Input((1,), dtype="string"), words, layers.Dense(2)])


def _words(data: bytes, rng: Rng) -> bytes:
    if rng.random() < 0.5:
        return mutations.changed_member(data, rng, {".txt": mutations.damaged})
    return _archive(data, rng)


def model_files(folder: Path) -> list[Kind]:
    model, graph = sequential(), functional()
    of_words().save(folder / "w.keras")
    model.save(folder / "s.keras")
    graph.save(folder / "g.keras")
    model.save(folder / "s.h5")
    model.save_weights(folder / "s.weights.h5")
    saving.save_checkpoint(folder / "s.checkpoint", model)
    reader, arguments = model.__reduce_ex__(4)
    assert reader is pickling.restored

    def weights() -> list[bytes]:
        return [array.tobytes() for array in model.get_weights()]

    def back_up(path: Path) -> None:
        shutil.copy(folder / "s.checkpoint", path.parent / CHECKPOINT)
        callback = keras.callbacks.BackupAndRestore(path.parent)
        callback.set_model(model)
        callback.on_train_begin()

    index = {"backups": [{"file": CHECKPOINT, "epoch": 1, "batch": 0}]}
    text = model.to_json().encode()
    bytes_of = {name: (folder / name).read_bytes() for name in (
        "s.keras", "g.keras", "w.keras", "s.h5", "s.weights.h5",
        "s.checkpoint")}  # fmt: skip
    return [
        Kind("model", bytes_of["s.keras"], "m.keras", _archive, saving.load_model),
        Kind("graph", bytes_of["g.keras"], "m.keras", _archive, saving.load_model),
        Kind("words", bytes_of["w.keras"], "m.keras", _words, saving.load_model),
        Kind("old model", bytes_of["s.h5"], "m.h5", _changed_h5_texts,
             saving.load_model),
        Kind("weights", bytes_of["s.weights.h5"], "m.weights.h5", mutations.damaged,
             model.load_weights, weights),
        Kind("checkpoint", bytes_of["s.checkpoint"], "c", mutations.damaged,
             lambda path: saving.load_checkpoint(path, model), weights),
        Kind("JSON", text, "m.json", mutations.changed_json,
             lambda path: saving.model_from_json(path.read_bytes())),
        Kind("pickled", arguments[0], "p", _archive,
             lambda path: reader(path.read_bytes(), *arguments[1:])),
        Kind("backup", json.dumps(index).encode(), "training_metadata.json",
             mutations.changed_json, back_up),
    ]  # fmt: skip


CHECKPOINT = "epoch-1-batch-0.checkpoint"


def each_layer() -> list[Kind]:
    """Files of every layer there is, with other arguments for it."""
    files: dict[int, bytes] = {}

    def file_of(number: int) -> bytes:
        if number not in files:
            case = CASES[number]
            kind = "int32" if case.classes else "float32"
            inputs = [keras.Input(shape[1:], dtype=kind) for shape in case.shapes]
            layer = case.make(layers)
            outputs = case.call(layer, inputs if len(inputs) > 1 else inputs[0])
            buffer = io.BytesIO()
            keras.Model(inputs, outputs).save(buffer)
            files[number] = buffer.getvalue()
        return files[number]

    def change_layer(data: bytes, rng: Rng) -> bytes:
        entry = json.loads(data)
        inner = entry["config"]["layers"][-1]
        if rng.random() < 0.5:
            inner["config"] = mutations.changed_tree(inner["config"], rng)
        else:
            numbers = mutations.numbers_in(inner["config"])
            if numbers:
                holder, key = numbers[rng.integers(len(numbers))]
                values = mutations.EXTREMES
                holder[key] = values[rng.integers(len(values))]
        text = json.dumps(entry)
        return text.encode("utf-8", "surrogatepass")

    def change(_: bytes, rng: Rng) -> bytes:
        data = file_of(int(rng.integers(len(CASES))))
        return mutations.changed_member(data, rng, {"config.json": change_layer})

    return [Kind("layer", b"", "l.keras", change, saving.load_model)] * 3


def torch_files() -> list[Kind]:
    from crafted_files import _text, torch_zip

    def tensor(key: str, shape: tuple[int, ...]) -> bytes:
        count = int(np.prod(shape))
        storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text(key)
        storage += _text("cpu") + b"K" + bytes([count]) + b"tQ"
        sizes = b"(" + b"".join(b"K" + bytes([size]) for size in shape) + b"t"
        strides = b"(" + b"".join(
            b"K" + bytes([int(np.prod(shape[i + 1 :]))]) for i in range(len(shape))
        )
        body = b"(" + storage + b"K\x00" + sizes + strides + b"t\x89)t"
        return b"ctorch._utils\n_rebuild_tensor_v2\n" + body + b"R"

    pickled = b"\x80\x02}(" + _text("w") + tensor("0", (2, 3))
    pickled += _text("b") + tensor("1", (3,)) + b"u."
    content = torch_zip(pickled, {"0": bytes(24), "1": bytes(12)})

    def change(data: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.2:
            return mutations.damaged(data, rng)
        changes = {"data.pkl": mutations.damaged, "/0": mutations.damaged}
        return mutations.changed_member(data, rng, changes)

    magic = 0x1950A86A20F9469CFC6C
    long = magic.to_bytes(11, "little")
    old = b"\x80\x02\x8a" + bytes([len(long)]) + long + b"."
    old += b"\x80\x02M\xe9\x03."
    old += b"\x80\x02}(" + _text("little_endian") + b"\x88u."
    old += pickled + b"\x80\x02](" + _text("0") + _text("1") + b"e."
    old += struct.pack("<q", 6) + bytes(24) + struct.pack("<q", 3) + bytes(12)
    torch_file._from_pickles(old)
    read = torch_file.read_state_dict
    return [
        Kind("PyTorch", content, "w.pt", change, read),
        Kind("old PyTorch", old, "w.pt", mutations.damaged, read),
    ]


def tensor_files() -> list[Kind]:
    model = keras.Sequential([keras.Input((3,)), layers.Dense(2, name="fc")])
    file = io.BytesIO()
    saving.safetensors.write(file, saving.state_dict(model))
    content = file.getvalue()
    (length,) = struct.unpack_from("<Q", content)

    def change(data: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.3:
            return mutations.damaged(data, rng)
        header = mutations.changed_json(data[8 : 8 + length], rng)
        return struct.pack("<Q", len(header)) + header + data[8 + length :]

    def weights() -> Any:
        return [array.tobytes() for array in model.get_weights()]

    name = "w.safetensors"
    return [Kind("safetensors", content, name, change, model.load_weights, weights)]


def onnx_files(folder: Path) -> list[Kind]:
    """Return small networks in ONNX, one with a loop, where that is installed."""
    try:
        import onnx
    except ImportError:
        return []
    model = keras.Sequential(
        [
            keras.Input((6, 6, 2)),
            layers.Conv2D(3, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(2, activation="softmax"),
        ]
    )
    loop = keras.Sequential([keras.Input((3, 2)), layers.GRU(2), layers.Dense(1)])
    contents = {}
    for name, net in (("ONNX", model), ("ONNX loop", loop)):
        net.export(folder / "net.onnx", verbose=False)
        contents[name] = (folder / "net.onnx").read_bytes()

    def change(data: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.3:
            return mutations.damaged(data, rng)
        proto = onnx.ModelProto.FromString(data)
        graph = proto.graph
        bodies = [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
        graph = bodies[0] if bodies and rng.random() < 0.5 else graph
        kind = rng.integers(0 if graph.initializer else 1, 4)
        if kind == 0:
            tensor = graph.initializer[rng.integers(len(graph.initializer))]
            extreme = mutations.EXTREMES[rng.integers(len(mutations.EXTREMES))]
            with contextlib.suppress(TypeError, ValueError, IndexError):
                tensor.dims[0] = extreme
        elif kind == 1:
            node = graph.node[rng.integers(len(graph.node))]
            node.op_type = graph.node[rng.integers(len(graph.node))].op_type
        elif kind == 2:
            node = graph.node[rng.integers(len(graph.node))]
            other = graph.node[rng.integers(len(graph.node))]
            node.input[0] = other.output[0]
        else:
            node = graph.node[rng.integers(len(graph.node))]
            for attribute in node.attribute:
                for number in range(len(attribute.ints)):
                    attribute.ints[number] = int(rng.integers(-3, 2**40))
        return proto.SerializeToString()

    return [
        Kind(name, content, "n.onnx", change, keras.load_onnx)
        for name, content in contents.items()
    ]


def texts(folder: Path) -> list[Kind]:
    """Texts as Keras publishes and as we keep them, and a tokenizer."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 90_000, n).tolist() for n in (3, 0, 1200, 40)]
    published = texts_file({"x": rows}, {"y": [1, 2, 3, 4]})
    decoded = sequences.from_keras(published, [("x", "y")])
    loading.write_cached(folder / "sealed.npz", decoded, keras_files.write_sealed)
    file = keras_files.KerasFile("t.npz", "", sequences.Texts, reuters.FILE.decode)
    tokenizer = Tokenizer(oov_token="?")
    tokenizer.fit_on_texts(["the cat", "the mat"])

    def in_pickle(data: bytes, rng: Rng) -> bytes:
        changes = {"x.npy": mutations.damaged, "y.npy": mutations.damaged}
        return mutations.changed_member(data, rng, changes)

    def unsealed(file: IO[bytes]) -> Any:
        return reuters.FILE.decode(file.read())

    return [
        Kind("texts", published, "t.npz", in_pickle,
             lambda path: loading.read_cached(path, None, unsealed)),
        Kind("sealed texts", (folder / "sealed.npz").read_bytes(), "s.npz",
             mutations.damaged,
             lambda path: loading.read_cached(path, None, file.kept)),
        Kind("tokenizer", tokenizer.to_json().encode(), "t.json",
             mutations.changed_json,
             lambda path: tokenizer_from_json(path.read_text(errors="replace"))),
    ]  # fmt: skip


def data_sets(folder: Path) -> list[Kind]:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (4, 5, 5)).astype("u1"), np.arange(4, dtype="u1")
    idx = b"\x00\x00\x08\x03" + struct.pack(">3I", *x.shape) + x.tobytes()
    loading.write_cached(folder / "d.npz", Arrays(x, y, x, y))
    sha = Arrays(x, y, x, y).sha256()
    records = rng.integers(0, 10, (2, 1 + decode.CIFAR_PIXELS)).astype("u1").tobytes()
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        for name in (*decode.CIFAR_TRAIN, decode.CIFAR_TEST):
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(records)
            archive.addfile(info, io.BytesIO(records))

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + crc

    def sheet(filters: bytes) -> bytes:
        lines = [bytes([label]) + rng.bytes(3072) for label in filters]
        head = struct.pack(">IIBBBBB", 1024, len(filters), 8, 2, 0, 0, 0)
        body = zlib.compress(b"".join(lines))
        return (
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", head)
            + chunk(b"IDAT", body)
            + chunk(b"IEND", b"")
        )

    def changed_png(data: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.3:
            return mutations.damaged(data, rng)
        head = bytearray(data[16:29])
        number = mutations.EXTREMES[rng.integers(len(mutations.EXTREMES))] % 2**32
        at = int(rng.choice([0, 4]))
        head[at : at + 4] = struct.pack(">I", number)
        return data[:8] + chunk(b"IHDR", bytes(head)) + data[33:]

    def fetched(decoder: Any) -> Callable[[Path], Any]:
        def read(path: Path) -> Any:
            for name in (*decode.IDX_FILES, *(f"{sheet}.png" for sheet in SHEETS)):
                if path.name != name:
                    shutil.copy(path, path.parent / name)
            for name in ("train_lables.json", "test_lables.json"):
                (path.parent / name).write_text("[1, 2, 3, 4]")
            return sources.placed(path.parent, decoder).fetch(Report())

        return read

    return [
        Kind("IDX", idx, decode.IDX_FILES[0], mutations.damaged,
             fetched(decode.idx_files)),
        Kind("IDX, packed", gzip.compress(idx), decode.IDX_FILES[0],
             mutations.damaged, fetched(decode.idx_files)),
        Kind("npz", (folder / "d.npz").read_bytes(), "d.npz", mutations.damaged,
             lambda path: loading.read_cached(path, sha)),
        Kind("tar", tar.getvalue(), decode.CIFAR_ARCHIVE, mutations.damaged,
             fetched(decode.cifar_binary)),
        Kind("sheet", sheet(bytes([0, 1, 2, 3, 4])), "data_batch_1.png", changed_png,
             fetched(decode.cifar_sheets)),
    ]  # fmt: skip


SHEETS = (*decode.CIFAR_TRAIN, decode.CIFAR_TEST)


def images() -> list[Kind]:
    from PIL import Image

    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (16, 20, 3)).astype("uint8"))
    form = Form((8, 8))
    results = []
    for name in ("PNG", "JPEG", "GIF", "BMP", "WEBP"):
        buffer = io.BytesIO()
        picture.save(buffer, format=name)
        results.append(
            Kind(name, buffer.getvalue(), f"i.{name.lower()}", mutations.damaged,
                 lambda path: decoding.decode(path, form))
        )  # fmt: skip
    return results


def caches(folder: Path) -> list[Kind]:
    """Ganglion's own caches: damage counts as absence, nothing is raised."""
    form, key = Form((4, 4)), "0" * 32
    cache.write(key, (3, *form.shape), lambda pixels: pixels.fill(7) or {2: "no image"})
    place = cache.folder() / key
    entry = {name: (place / name).read_bytes() for name in ("index.json", "pixels.npy")}

    def image_entry(path: Path) -> None:
        for name, content in entry.items():
            (place / name).write_bytes(content)
        shutil.copy(path, place / path.name)
        held = cache.read(key, 3, form)
        assert held is None or (held.pixels == 7).all()

    outputs = feature_cache.folder() / f"{'1' * 40}.outputs"
    feature_cache._write(outputs, np.full((3, 5), 2.5, "float32"))

    def kept_outputs(path: Path) -> None:
        shutil.copy(path, outputs)
        held = feature_cache._read(outputs, (3, 5))
        assert held is None or (held == 2.5).all()

    from step_programs import step_of

    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    data = {name: data[name] for name in program.data}
    ran = backend.compile(program).run(
        data, {name: array.copy() for name, array in state.items()}, 2
    )
    programs = sorted(cpu_cache.folder().glob("*.program"))
    largest = max(programs, key=lambda path: path.stat().st_size)
    others = [path.read_bytes() for path in programs]

    def changed_program(content: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.3:
            return others[rng.integers(len(others))]  # another's code
        return mutations.damaged(content, rng)

    def compiled_program(path: Path) -> None:
        shutil.copy(path, largest)
        copied = {name: array.copy() for name, array in state.items()}
        again = backend.compile(program).run(data, copied, 2)
        for name, array in ran.items():
            np.testing.assert_array_equal(again[name], array)

    return [
        Kind("image index", entry["index.json"], "index.json", mutations.changed_json,
             image_entry),
        Kind("image pixels", entry["pixels.npy"], "pixels.npy", mutations.damaged,
             image_entry),
        Kind("kept outputs", outputs.read_bytes(), "o", mutations.damaged,
             kept_outputs),
        Kind("program", largest.read_bytes(), "p", changed_program, compiled_program),
    ]  # fmt: skip


def sets(folder: Path) -> list[Kind]:
    def build(units: int) -> Any:
        model = keras.Sequential([keras.Input((3,)), layers.Dense(units)])
        model.compile("adam", "mse")
        return model

    trained = many.fit_many(
        build, many.grid(units=[1, 1], seed=[0]), np.ones((4, 3)), np.ones(4), verbose=0
    )
    trained.save(folder / "set.zip")

    def change(content: bytes, rng: Rng) -> bytes:
        if rng.random() < 0.5:
            changes = {"set.json": mutations.changed_json}
            return mutations.changed_member(content, rng, changes)
        return mutations.damaged(content, rng)

    content = (folder / "set.zip").read_bytes()
    return [Kind("set", content, "set.zip", change, many.load)]


def races(folder: Path) -> list[Kind]:
    import race_made_up

    results.save(race_made_up.race(1, 2), folder)
    content = (folder / results.FILE).read_bytes()
    return [Kind("race", content, results.FILE, mutations.changed_json, results.load)]


def all_kinds(folder: Path) -> list[Kind]:
    """Return every kind, made in a folder; GANGLION_HOME must be a scratch one."""
    config.home().mkdir(parents=True, exist_ok=True)
    return [
        *model_files(folder),
        *each_layer(),
        *torch_files(),
        *tensor_files(),
        *onnx_files(folder),
        *data_sets(folder),
        *texts(folder),
        *images(),
        *caches(folder),
        *sets(folder),
        *races(folder),
    ]
