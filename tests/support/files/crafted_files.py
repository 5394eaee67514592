"""Small files that ask for much: each a way in which memory or time was to be had.

`CASES` has a function for each, which writes a file into a folder and returns what
reads it. They are tried in a process of their own (`test_budget.py`), whose memory
is bounded and measured, and the fuzzer begins with them.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import ganglion as keras
from ganglion import layers, saving

Case = Callable[[Path], Callable[[], Any]]
CASES: dict[str, Case] = {}
HUGE = 10**9


def case(make: Case) -> Case:
    CASES[make.__name__.replace("_", " ")] = make
    return make


def model() -> Any:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3), layers.Dense(2)])
    model.compile("adam", "mse")
    return model


def archive(
    folder: Path,
    change: Callable[[dict[str, Any]], Any] = lambda config: None,
    weights: Callable[[Any], None] | None = None,
    compressed: bool = False,
    text: bytes | None = None,
) -> Callable[[], Any]:
    """Write a `.keras` file with another configuration or other weights."""
    path = folder / "m.keras"
    model().save(path)
    with zipfile.ZipFile(path) as held:
        parts = {name: held.read(name) for name in held.namelist()}
    config = json.loads(parts["config.json"])
    change(config)
    parts["config.json"] = json.dumps(config).encode() if text is None else text
    if weights is not None:
        buffer = io.BytesIO(parts["model.weights.h5"])
        with h5py.File(buffer, "r+") as file:
            weights(file)
        parts["model.weights.h5"] = buffer.getvalue()
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as written:
        for name, content in parts.items():
            written.writestr(name, content)
    return lambda: saving.load_model(path)


def layer(config: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return config["config"]["layers"][number]["config"]


# ---- .keras: the configuration -----------------------------------------------------


@case
def an_array_of_a_huge_type(folder: Path) -> Callable[[], Any]:
    """The 2 KB that took 6 GB: three items of 2 GB."""
    plain = {"value": [0, 0, 0], "dtype": "V2000000000"}
    entry = {"class_name": "__numpy__", "config": plain}
    return archive(folder, lambda config: layer(config).update(bias_initializer=entry))


@case
def an_array_of_huge_texts(folder: Path) -> Callable[[], Any]:
    plain = {"value": ["a"] * 20, "dtype": "U100000000"}
    entry = {"class_name": "__numpy__", "config": plain}
    return archive(folder, lambda config: layer(config).update(kernel_constraint=entry))


@case
def a_layer_of_a_billion_units(folder: Path) -> Callable[[], Any]:
    return archive(folder, lambda config: layer(config).update(units=HUGE))


@case
def many_layers_of_many_units(folder: Path) -> Callable[[], Any]:
    """Each by itself would do."""

    def change(config: dict[str, Any]) -> None:
        dense = config["config"]["layers"][2]
        for number in range(300):
            copied = json.loads(json.dumps(dense))
            copied["config"].update(name=f"d{number}", units=4000)
            copied.pop("build_config", None)
            config["config"]["layers"].append(copied)

    return archive(folder, change)


@case
def an_input_of_any_size(folder: Path) -> Callable[[], Any]:
    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][0]["config"]["batch_shape"] = [None, HUGE]
        config["config"].pop("build_input_shape", None)

    return archive(folder, change)


@case
def a_configuration_of_empty_lists(folder: Path) -> Callable[[], Any]:
    """Sixty megabytes of JSON in sixty kilobytes, and 1.3 GB when parsed."""
    text = b'{"class_name": "Sequential", "config": [' + b"[]," * 20_000_000 + b"1]}"
    return archive(folder, compressed=True, text=text)


@case
def a_million_layers(folder: Path) -> Callable[[], Any]:
    layer = '{"class_name":"ReLU","config":{}}'
    text = ",".join([layer] * 400_000)
    config = f'{{"class_name":"Sequential","config":{{"layers":[{text}]}}}}'
    return archive(folder, compressed=True, text=config.encode())


def nested_twice(depth: int) -> dict[str, Any]:
    """A model that calls a model twice, which calls a model twice, and so on."""
    x = keras.Input((2,), name="x0")
    inner = keras.Model(x, layers.ReLU(name="r")(x), name="m0")
    entry = keras.saving.serialize_keras_object(inner)
    for number in range(1, depth):
        name = f"m{number - 1}"
        first = {
            "class_name": "__keras_tensor__",
            "config": {
                "shape": [None, 2],
                "dtype": "float32",
                "keras_history": ["x", 0, 0],
            },
        }
        second = json.loads(json.dumps(first))
        second["config"]["keras_history"] = [name, 0, 0]
        source = {
            "module": "keras.layers",
            "class_name": "InputLayer",
            "config": {"batch_shape": [None, 2], "name": "x"},
            "registered_name": None,
            "name": "x",
            "inbound_nodes": [],
        }
        calls = [{"args": [tensor], "kwargs": {}} for tensor in (first, second)]
        entry = {
            "module": "keras.src.models.functional",
            "class_name": "Functional",
            "config": {
                "name": f"m{number}",
                "layers": [source, {**entry, "name": name, "inbound_nodes": calls}],
                "input_layers": [["x", 0, 0]],
                "output_layers": [[name, 2, 0]],
            },
            "registered_name": None,
        }
    return entry


@case
def models_in_models(folder: Path) -> Callable[[], Any]:
    """Two to the power of thirty calls, in a few kilobytes."""
    return archive(folder, text=json.dumps(nested_twice(30)).encode())


@case
def models_in_models_without_end(folder: Path) -> Callable[[], Any]:
    inner: Any = {"class_name": "ReLU", "config": {}}
    for _ in range(300):
        inner = {"class_name": "Sequential", "config": {"layers": [inner]}}
    return archive(folder, text=json.dumps(inner).encode())


@case
def a_metric_of_a_billion_thresholds(folder: Path) -> Callable[[], Any]:
    def change(config: dict[str, Any]) -> None:
        auc = {"num_thresholds": HUGE, "name": "auc"}
        config["compile_config"]["metrics"] = [
            {"module": "keras.metrics", "class_name": "AUC", "config": auc}
        ]

    return archive(folder, change)


@case
def json_without_a_file(folder: Path) -> Callable[[], Any]:
    config = json.loads(model().to_json())
    layer(config).update(units=HUGE)
    return lambda: keras.models.model_from_json(json.dumps(config))


# ---- zip and HDF5 ------------------------------------------------------------------


def zeros(megabytes: int) -> bytes:
    """Return so many zeros, packed: each megabyte is the same bytes again."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    check = (megabytes << 20) % 65521 << 16 | 1  # Adler's sum of zeros
    return b"\x78\x01" + piece * megabytes + b"\x03\x00" + struct.pack(">I", check)


@case
def gzip_inside_of_zip(folder: Path) -> Callable[[], Any]:
    """The 16 KB that took 6 GB: limits of a hundred and of a thousand, multiplied."""

    def weights(file: Any) -> None:
        settings = {"chunks": (1024, 1024), "compression": "gzip"}
        packed = zeros(4)
        for number in range(100):
            place = f"layers/extra_{number}/vars/0"
            dataset = file.create_dataset(place, (4096, 4096), "f4", **settings)
            for corner in np.ndindex(4, 4):
                start = tuple(1024 * index for index in corner)
                dataset.id.write_direct_chunk(start, packed)

    return archive(folder, weights=weights, compressed=True)


@case
def many_arrays_of_the_free_size(folder: Path) -> Callable[[], Any]:
    """Each is small enough to need no check of its own."""

    def weights(file: Any) -> None:
        for number in range(200):
            place = f"ganglion/metrics/{number + 100}"
            file.create_dataset(f"{place}/0", (4000, 4000), "f4")
            file[place].attrs["name"] = "m"

    return archive(folder, weights=weights)


@case
def one_array_under_many_names(folder: Path) -> Callable[[], Any]:
    path = folder / "m.weights.h5"
    network = model()
    network.save_weights(path)
    with h5py.File(path, "r+") as file:
        dataset = file.create_dataset(
            "layers/dense/vars/2", data=np.zeros(1 << 22, "f4")
        )
        for number in range(400):
            file[f"layers/dense/vars/{number + 3}"] = dataset
    return lambda: network.load_weights(path)


def kernel_in_one_chunk(
    folder: Path, chunks: tuple[int, int], megabytes: int
) -> Callable[[], Any]:
    """Return a reader of a model whose kernel is a chunk that unpacks to so much."""

    def weights(file: Any) -> None:
        name = "layers/dense/vars/0"
        del file[name]
        settings = {"maxshape": (None, None), "compression": "gzip"}
        kernel = file.create_dataset(name, (4, 3), "f4", chunks=chunks, **settings)
        kernel.id.write_direct_chunk((0, 0), zeros(megabytes))

    return archive(folder, weights=weights, compressed=True)


@case
def a_chunk_that_unpacks_to_more(folder: Path) -> Callable[[], Any]:
    """HDF5 unpacks a chunk whole, however much it says it is."""
    return kernel_in_one_chunk(folder, (512, 512), 1500)


@case
def a_chunk_that_is_huge(folder: Path) -> Callable[[], Any]:
    return kernel_in_one_chunk(folder, (1 << 14, 1 << 15), 2048)


@case
def packed_twice(folder: Path) -> Callable[[], Any]:
    def weights(file: Any) -> None:
        del file["layers/dense/vars/0"]
        settings = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        settings.set_chunk((4, 3))
        settings.set_deflate(9)
        settings.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
        dataset = h5py.h5d.create(
            file["layers/dense/vars"].id,
            b"0",
            h5py.h5t.IEEE_F32LE,
            h5py.h5s.create_simple((4, 3)),
            settings,
        )
        del dataset

    return archive(folder, weights=weights)


@case
def a_long_text_named_many_times(folder: Path) -> Callable[[], Any]:
    """An attribute of references, each to the same megabyte."""
    path = folder / "m.h5"
    network = model()
    network.save(path)
    with h5py.File(path, "r+") as file:
        group = file["model_weights"]
        del group.attrs["layer_names"]
        kind = h5py.string_dtype()
        names = np.array(["x" * (1 << 20)] * 8, dtype=object)
        group.attrs.create("layer_names", names, dtype=kind)
    raw = bytearray(path.read_bytes())
    return lambda: (path.write_bytes(raw), saving.load_model(path))


# ---- others --------------------------------------------------------------------------


def torch_zip(pickled: bytes, storages: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as written:
        written.writestr("a/data.pkl", pickled)
        for key, content in storages.items():
            written.writestr(f"a/data/{key}", content)
    return buffer.getvalue()


def reading_torch(folder: Path, content: bytes) -> Callable[[], Any]:
    from ganglion.saving.torch_file import read_state_dict

    path = folder / "w.pt"
    path.write_bytes(content)
    return lambda: read_state_dict(path)


def _text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


@case
def tensors_of_the_same_numbers(folder: Path) -> Callable[[], Any]:
    """Ten thousand views of one megabyte."""
    count = 1 << 18
    number = struct.pack("<i", count)
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0")
    storage += _text("cpu") + b"J" + number + b"tQ"
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00J" + number
    tensor += b"\x85K\x01\x85\x89)tR"
    pickled = b"\x80\x02}(" + _text("a") + tensor + b"q\x01"
    pickled += b"".join(_text(f"k{i}") + b"h\x01" for i in range(10_000)) + b"u."
    return reading_torch(folder, torch_zip(pickled, {"0": bytes(4 * count)}))


@case
def a_pickle_of_empty_dictionaries(folder: Path) -> Callable[[], Any]:
    pickled = b"\x80\x02(" + b"}" * 20_000_000 + b"t."
    return reading_torch(folder, torch_zip(pickled, {}))


@case
def a_data_set_that_unpacks_to_gigabytes(folder: Path) -> Callable[[], Any]:
    from ganglion.datasets import decode, sources

    # A file of many members, one after the other, unpacks to all of them.
    head = gzip.compress(b"\x00\x00\x08\x01" + struct.pack(">I", 3 << 30))
    packed = head + gzip.compress(bytes(1 << 20)) * (3 << 10)
    for name in decode.IDX_FILES:
        (folder / f"{name}.gz").write_bytes(packed)
    from ganglion.datasets.download import Report

    return lambda: sources.placed(folder, decode.idx_files).fetch(Report())


@case
def a_kept_data_set_that_claims_gigabytes(folder: Path) -> Callable[[], Any]:
    from ganglion.datasets import loading

    head = io.BytesIO()
    claims = {"descr": "|u1", "fortran_order": False, "shape": (6 * HUGE,)}
    np.lib.format.write_array_header_1_0(head, claims)
    path = folder / "tiny.npz"
    with zipfile.ZipFile(path, "w") as written:
        for name in ("x_train", "y_train", "x_test", "y_test"):
            written.writestr(f"{name}.npy", head.getvalue() + bytes(1000))
    return lambda: loading.read_cached(path, "0" * 64)


@case
def an_image_of_gigabytes(folder: Path) -> Callable[[], Any]:
    from ganglion.datasets import decode, png, sources
    from ganglion.datasets.download import Report

    def chunk(kind: bytes, body: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + crc

    head = struct.pack(">IIBBBBB", 1024, (900 << 20) // 3073, 8, 2, 0, 0, 0)
    file = png.SIGNATURE + chunk(b"IHDR", head)
    file += chunk(b"IDAT", zeros(900)) + chunk(b"IEND", b"")
    for name in (*decode.CIFAR_TRAIN, decode.CIFAR_TEST):
        (folder / f"{name}.png").write_bytes(file)
    return lambda: sources.placed(folder, decode.cifar_sheets).fetch(Report())


@case
def a_pickled_model_with_a_huge_layer(folder: Path) -> Callable[[], Any]:
    reader, (_, *rest) = model().__reduce_ex__(4)
    archive(folder, lambda config: layer(config).update(units=HUGE))
    data = (folder / "m.keras").read_bytes()
    return lambda: pickle.loads(pickle.dumps(reader))(data, *rest)
