"""`keras.distribution` as data, beside Keras; several devices are refused."""

from typing import Any

import numpy as np
import pytest
from keras_programs import errors_of

import ganglion
from ganglion import distribution

PAIR = ["cpu:0", "cpu:1"]


def described(keras: Any) -> list[Any]:
    kinds = keras.distribution
    mesh = kinds.DeviceMesh((2, 1), ["batch", "model"], PAIR)
    layouts = kinds.LayoutMap(mesh)
    layouts["dense.*kernel"] = kinds.TensorLayout([None, "model"])
    layouts["dense/bias"] = ("model",)
    spread = kinds.ModelParallel(layout_map=layouts)
    copied = kinds.DataParallel(devices=PAIR)
    weight = keras.Variable(np.ones((2, 3)), name="w")
    return [
        tuple(mesh.shape),
        list(mesh.axis_names),
        mesh.devices.tolist(),
        layouts["dense_1/kernel"].axes,
        layouts["dense/bias"].device_mesh is mesh,
        layouts["other"],
        len(layouts),
        list(layouts),
        spread.num_model_replicas,
        spread.batch_dim_name,
        spread.get_data_layout((4, 5)).axes,
        spread.get_variable_layout(weight).axes,
        spread.get_tensor_layout("dense/bias").axes,
        copied.num_model_replicas,
        copied.get_data_layout((4, 5)).axes,
        copied.get_variable_layout(weight).axes,
        copied.get_tensor_layout("x"),
        repr(mesh),
    ]


def refusals(keras: Any) -> list[type]:
    kinds = keras.distribution
    mesh = kinds.DeviceMesh((2,), ["batch"], PAIR)
    layouts = kinds.LayoutMap(mesh)
    layouts["a.*"] = kinds.TensorLayout([None])
    layouts[".*b"] = kinds.TensorLayout([None])
    layout = kinds.TensorLayout([None], mesh)
    calls = [
        lambda: kinds.DeviceMesh((), []),
        lambda: kinds.DeviceMesh((2,), ["a", "b"], PAIR),
        lambda: kinds.DeviceMesh((3,), ["a"], PAIR),
        lambda: kinds.TensorLayout(["other"], mesh),
        lambda: setattr(layout, "device_mesh", mesh),
        lambda: layouts["ab"],
        lambda: layouts.__setitem__("a.*", layout),
        lambda: layouts.__setitem__("c", "other"),
        lambda: kinds.DataParallel(device_mesh="other"),
        lambda: kinds.ModelParallel(layout_map=None),
        lambda: kinds.ModelParallel(layout_map={}),
    ]
    return errors_of(calls)


@pytest.mark.rivals
def test_as_keras(keras):
    assert described(ganglion) == described(keras)
    assert refusals(ganglion) == refusals(keras)


def test_one_device():
    assert distribution.list_devices() == ["cpu:0"]
    assert distribution.get_device_count("gpu") == 0
    alone = distribution.DataParallel()
    with alone.scope():
        assert distribution.distribution() is alone
    assert distribution.distribution() is None
    distribution.initialize()


def test_several_devices_are_refused_by_name():
    pair = distribution.DataParallel(devices=PAIR)
    with pytest.raises(ValueError, match="2 devices, but Ganglion trains on one"):
        distribution.set_distribution(pair)
    with pytest.raises(ValueError, match="one process on one device"):
        distribution.initialize("10.0.0.1:1,10.0.0.2:1", 2, 0)
    with pytest.raises(ValueError, match="Unknown device type"):
        distribution.list_devices("abacus")
