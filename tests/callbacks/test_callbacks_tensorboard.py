"""TensorBoard's event files, read by a parser of our own and by TensorFlow."""

import contextlib
import json
import os
import struct

import numpy as np
import pytest
from callback_fakes import Model, Optimizer

import ganglion
from ganglion.callbacks import (
    CallbackList,
    TensorBoard,
)
from ganglion.callbacks.event_file import EventFile, crc32c
from ganglion.variables import Variable


def records(folder):
    """Read the event files of a folder; check the length and both checksums."""
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            assert masked(data[:8]) == data[8:12]
            body = data[12 : 12 + length]
            assert masked(body) == data[12 + length : 16 + length]
            data = data[16 + length :]
            yield body


def masked(data):
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) % 2**32)


def fields(data):
    """Take a protobuf message apart: a dictionary of field numbers to values."""
    fields_by_number = {}
    position = 0

    def varint():
        nonlocal position
        number = shift = 0
        while True:
            byte = data[position]
            position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    while position < len(data):
        key = varint()
        if key & 7 == 0:
            fields_by_number[key >> 3] = varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        fields_by_number[key >> 3] = data[position : position + size]
        position += size
    return fields_by_number


def scalars(folder):
    values = []
    for body in records(folder):
        event = fields(body)
        if 5 in event:
            value = fields(fields(event[5])[1])
            if 2 in value:
                (number,) = struct.unpack("<f", value[2])
                values.append((value[1].decode(), event.get(2, 0), round(number, 6)))
    return values


def board_run(folder, **options):
    """Run two epochs of two steps each, with validation."""
    model = Model()
    model.weights = [Variable(np.arange(6.0), name="kernel")]
    board = TensorBoard(folder, **options)
    every = CallbackList([board], model=model)
    every.on_train_begin()
    for epoch in range(2):
        every.on_epoch_begin(epoch)
        for step in range(2):
            every.on_train_batch_begin(step)
            model.optimizer.iterations.assign_add(1)
            every.on_train_batch_end(step, {"loss": 0.5 + step})
        every.on_test_begin()
        every.on_test_end({"loss": 0.25})
        every.on_epoch_end(epoch, {"loss": 0.5, "accuracy": 0.75, "val_loss": 0.25})
    every.on_train_end()


def test_tensorboard_writes_the_tags_of_keras(tmp_path):
    board_run(tmp_path)
    expected = [("epoch_accuracy", 0.75), ("epoch_loss", 0.5)]
    expected.append(("epoch_learning_rate", 0.1))
    assert scalars(tmp_path / "train") == [
        (tag, epoch, value) for epoch in (0, 1) for tag, value in expected
    ]
    assert scalars(tmp_path / "validation") == [
        ("evaluation_loss_vs_iterations", 2, 0.25),
        ("epoch_loss", 0, 0.25),
        ("evaluation_loss_vs_iterations", 4, 0.25),
        ("epoch_loss", 1, 0.25),
    ]
    first = fields(next(records(tmp_path / "train")))
    assert first[3] == b"brain.Event:2"


def test_tensorboard_writes_metrics_of_steps(tmp_path):
    board_run(tmp_path, update_freq=2)
    batches = [scalar for scalar in scalars(tmp_path / "train") if "batch" in scalar[0]]
    assert batches == [("batch_loss", 2, 1.5), ("batch_loss", 4, 1.5)]
    assert CallbackList([TensorBoard(update_freq="batch")]).needs_batches
    assert not CallbackList([TensorBoard()]).needs_batches


def test_tensorboard_writes_speed_and_histograms(tmp_path):
    board_run(tmp_path, write_steps_per_second=True, histogram_freq=1, update_freq=1)
    tags = {tag for tag, _, _ in scalars(tmp_path / "train")}
    assert {"batch_steps_per_second", "epoch_steps_per_second"} <= tags
    values = [
        fields(fields(fields(body)[5])[1])
        for body in records(tmp_path / "train")
        if 5 in fields(body)
    ]
    (first, _) = [value for value in values if 5 in value]
    histogram = fields(first[5])
    assert first[1] == b"kernel/histogram"
    numbers = [struct.unpack("<d", histogram[field])[0] for field in range(1, 6)]
    assert numbers == [0, 5, 6, 15, 55]  # least, most, count, sum, sum of squares
    assert np.frombuffer(histogram[7]).sum() == 6


def test_tensorboard_refuses_what_it_does_not_write():
    with pytest.raises(ValueError, match="`profile_batch=2` is not supported"):
        TensorBoard(profile_batch=2)
    with pytest.raises(ValueError, match="update_freq='step'"):
        TensorBoard(update_freq="step")


def text_model():
    layers = [ganglion.Input((3,)), ganglion.layers.Embedding(5, 2, name="words")]
    flat = [ganglion.layers.Flatten(), ganglion.layers.Dense(1)]
    model = ganglion.Sequential([*layers, *flat])
    model.compile("sgd", "mse")
    return model


def test_tensorboard_writes_the_model_images_and_embeddings(tmp_path):
    model = text_model()
    board = TensorBoard(
        tmp_path,
        histogram_freq=1,
        write_images=True,
        embeddings_freq=1,
        embeddings_metadata={"words": "labels.tsv"},
    )
    x = np.ones((4, 3))
    model.fit(x, np.ones((4, 1)), verbose=0, callbacks=[board])
    values = [
        fields(fields(fields(body)[5])[1])
        for body in records(tmp_path / "train")
        if 5 in fields(body)
    ]
    tensors = {value[1].decode(): fields(value[8]) for value in values if 8 in value}
    assert json.loads(tensors["keras"][8])["class_name"] == "Sequential"
    images = [tag for tag in tensors if tag.endswith("/image")]
    assert len(images) == 2  # a bias of one number is none
    assert tensors[images[0]][8].startswith(b"\x89PNG")
    assert (tmp_path / "train" / "keras_embedding.ckpt-0.weights.h5").exists()
    projector = (tmp_path / "projector_config.pbtxt").read_text()
    assert 'metadata_path: "labels.tsv"' in projector
    with pytest.raises(ValueError, match="names no Embedding layer: other"):
        TensorBoard(
            tmp_path, embeddings_freq=1, embeddings_metadata={"other": "x"}
        ).set_model(model)


@pytest.mark.rivals
def test_tensorflow_reads_our_images(tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    file = EventFile(tmp_path)
    pixels = np.arange(24, dtype="uint8").reshape(1, 4, 6, 1)
    file.image("w", pixels, 1)
    file.model("{}")
    file.flush()
    iterator = tensorflow.compat.v1.train.summary_iterator
    _, image, model = iterator(str(file.path))
    value = image.summary.value[0]
    assert value.metadata.plugin_data.plugin_name == "images"
    width, height, picture = tensorflow.make_ndarray(value.tensor)
    assert (width, height) == (b"6", b"4")
    np.testing.assert_array_equal(tensorflow.image.decode_png(picture), pixels[0])
    value = model.summary.value[0]
    assert value.metadata.plugin_data.plugin_name == "graph_keras_model"
    assert tensorflow.make_ndarray(value.tensor) == b"{}"


@pytest.mark.parametrize(
    "weights", [[0.0], [1e20, 1e20], [1.0, 1.0 + 2**-52], [np.nan], [-3e38, 3e38]]
)
def test_any_weights_have_a_histogram(tmp_path, weights):
    file = EventFile(tmp_path)
    file.histogram("w", np.array(weights), 0)
    file.flush()
    assert file.path.stat().st_size > 500


@pytest.mark.rivals
def test_tensorflow_reads_our_event_files(tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    file = EventFile(tmp_path)
    file.scalar("epoch_loss", 0.5, 3)
    file.histogram("w", np.arange(4.0), 1 << 40)
    file.flush()
    iterator = tensorflow.compat.v1.train.summary_iterator
    version, scalar, histogram = iterator(str(file.path))
    assert version.file_version == "brain.Event:2"
    value = scalar.summary.value[0]
    assert (value.tag, value.simple_value, scalar.step) == ("epoch_loss", 0.5, 3)
    assert histogram.step == 1 << 40
    histo = histogram.summary.value[0].histo
    assert (histo.min, histo.max, histo.num, histo.sum) == (0, 3, 4, 6)
    assert len(histo.bucket) == len(histo.bucket_limit) == 30


class Recorder:
    """Stands for `tensorflow.summary`, whose scalars need the tensorboard package."""

    def __init__(self):
        self.written = []
        self._writers = []
        self._conditions = [lambda: True]

    def create_file_writer(self, folder):
        recorder = self

        class Writer:
            close = flush = lambda self: None

            @contextlib.contextmanager
            def as_default(self, step=None):
                recorder._writers.append(os.path.basename(folder))
                yield
                recorder._writers.pop()

        return Writer()

    @contextlib.contextmanager
    def record_if(self, condition):
        self._conditions.append(condition)
        yield
        self._conditions.pop()

    def scalar(self, tag, value, step):
        if self._writers and self._conditions[-1]():
            self.written.append((self._writers[-1], tag, int(step), round(value, 6)))


@pytest.mark.rivals
@pytest.mark.parametrize("update_freq", ["epoch", 1, 2])
def test_tensorboard_writes_what_keras_writes(keras, tmp_path, update_freq):
    theirs = keras.callbacks.TensorBoard(
        tmp_path, update_freq=update_freq, write_graph=False
    )
    theirs._summary_module = recorder = Recorder()
    ours = TensorBoard(tmp_path, update_freq=update_freq)
    for board, optimizer in ((theirs, keras.optimizers.SGD(0.1)), (ours, Optimizer())):
        model = Model()
        model.optimizer = optimizer
        every = CallbackList([board], model=model)
        every.on_train_begin()
        for epoch in range(2):
            every.on_epoch_begin(epoch)
            # Even numbers: Keras drops an epoch's values unless its last step is due.
            for step in range(4):
                every.on_train_batch_begin(step)
                optimizer.iterations.assign_add(1)
                every.on_train_batch_end(step, {"loss": step + 0.5, "mae": 1.0})
            every.on_test_begin()
            for step in range(2):
                every.on_test_batch_begin(step)
                every.on_test_batch_end(step, {"loss": 0.5})
            every.on_test_end({"loss": 0.25, "mae": 0.5})
            logs = {"loss": 1.5, "mae": 1.0, "val_loss": 0.25, "val_mae": 0.5}
            every.on_epoch_end(epoch, logs)
        every.on_train_end()
    for kind in ("train", "validation"):
        expected = [rest for where, *rest in recorder.written if where == kind]
        assert [list(scalar) for scalar in scalars(tmp_path / kind)] == expected
