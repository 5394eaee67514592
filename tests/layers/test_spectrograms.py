"""Spectrograms and the CTC loss, beside Keras."""

from __future__ import annotations

import numpy as np
import pytest

import ganglion

rng = np.random.default_rng(0)
SOUND = rng.normal(size=(2, 400)).astype("float32")
CHANNELS = rng.normal(size=(2, 300, 2)).astype("float32")
MELS = [
    {},
    {"power_to_db": False, "mag_exp": 1.0},
    {"sequence_length": 40, "window": "hamming", "min_freq": 100.0, "max_freq": 3000},
]
MODES = ["log", "magnitude", "psd", "real", "imag", "angle", "stft"]
STFTS = [
    *({"mode": mode, "frame_length": 32} for mode in MODES),
    {"frame_length": 30, "frame_step": 7, "fft_length": 64, "padding": "same"},
    {"mode": "psd", "frame_length": 32, "expand_dims": True, "scaling": "spectrum"},
    {"mode": "real", "frame_length": 32, "window": None, "periodic": True},
    {"mode": "stft", "frame_length": 32, "data_format": "channels_first"},
    {"frame_length": 32, "data_format": "channels_first", "expand_dims": True},
]


def both(keras, name, options, x):
    layers = [getattr(room.layers, name)(**options) for room in (keras, ganglion)]
    theirs, ours = layers
    right = keras.ops.convert_to_numpy(theirs(x))
    got = np.asarray(ours(x))
    assert (got.shape, got.dtype) == (right.shape, right.dtype)
    return theirs, ours, right, got


@pytest.mark.rivals
@pytest.mark.parametrize("options", MELS, ids=str)
def test_mel_spectrograms(keras, options):
    options = {"fft_length": 64, "sequence_stride": 16, "num_mel_bins": 9} | options
    theirs, ours, right, got = both(keras, "MelSpectrogram", options, SOUND)
    np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-3)
    assert ours.get_config().keys() == theirs.get_config().keys()


@pytest.mark.rivals
@pytest.mark.parametrize("options", STFTS, ids=str)
def test_stft_spectrograms(keras, options):
    first = options.get("data_format") == "channels_first"
    x = CHANNELS.transpose(0, 2, 1).copy() if first else CHANNELS
    if first:  # TensorFlow has no such convolution on a CPU
        keras_options = {k: v for k, v in options.items() if k != "data_format"}
        theirs = keras.layers.STFTSpectrogram(**keras_options)
        right = np.moveaxis(np.asarray(theirs(CHANNELS)), -1, 1)
        got = ganglion.layers.STFTSpectrogram(**options)(x)
        np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-4)
        return
    theirs, ours, right, got = both(keras, "STFTSpectrogram", options, x)
    close = np.abs(np.exp(1j * got) - np.exp(1j * right)) < 1e-3
    if options.get("mode") == "angle":  # which turns at the noise of a zero
        assert close.mean() > 0.97
    else:
        np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-4)
    assert [w.shape for w in ours.weights] == [tuple(w.shape) for w in theirs.weights]
    config = {key: ours.get_config()[key] for key in options}
    assert config == options


@pytest.mark.rivals
def test_ctc_loss(keras):
    labels = np.array([[1, 2, 2, 0], [3, 0, 0, 0]], "int32")
    scores = rng.normal(size=(2, 7, 5)).astype("float32")
    right = keras.losses.CTC()(labels, scores)
    np.testing.assert_allclose(ganglion.losses.CTC()(labels, scores), right, rtol=1e-5)


def test_a_model_learns_by_ctc():
    inputs = ganglion.Input((6, 3))
    outputs = ganglion.layers.Dense(4)(inputs)
    model = ganglion.Model(inputs, outputs)
    model.compile("adam", ganglion.losses.CTC())
    x = rng.normal(size=(16, 6, 3)).astype("float32")
    y = rng.integers(1, 4, (16, 2)).astype("int32")
    losses = model.fit(x, y, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda k: k.layers.MelSpectrogram(fft_length=8, sequence_length=9), "fft_len"),
        (lambda k: k.layers.STFTSpectrogram(mode="loud"), "mode"),
        (lambda k: k.layers.STFTSpectrogram(frame_step=999), "frame_step"),
        (lambda k: k.layers.STFTSpectrogram(window="round"), "round"),
        (lambda k: k.losses.CTC()(np.ones(3), np.ones((3, 4, 5))), "y_true"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make(ganglion)
