"""`keras.distribution`: meshes and layouts as data; a single device computes.

Scripts that describe how a model is spread run as long as the mesh has one device; more
are refused where they are set.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import config

_BATCH = "batch"
_active: list[Any] = [None]


def list_devices(device_type: str | None = None) -> list[str]:
    """Return the devices that compute: "cpu:0", or "gpu:0" where CUDA was chosen.

    >>> list_devices("cpu")
    ['cpu:0']
    """
    kinds = {None: "", "cpu": "cpu", "gpu": "gpu", "cuda": "gpu", "tpu": "tpu"}
    kind = device_type.lower() if isinstance(device_type, str) else device_type
    if kind not in kinds:
        raise ValueError(
            f"Unknown device type {device_type!r}: it is 'cpu', 'gpu', 'tpu' or None."
        )
    devices = ["gpu:0"] if config.backend_choice() == "cuda" else ["cpu:0"]
    return [name for name in devices if name.startswith(kinds[kind])]


def get_device_count(device_type: str | None = None) -> int:
    """Return how many devices there are of a kind."""
    return len(list_devices(device_type))


def initialize(
    job_addresses: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Accept a job of this process alone; raise for a job of several."""
    if num_processes not in (None, 1) or process_id not in (None, 0):
        raise ValueError(
            f"A job of {num_processes} processes is not supported: Ganglion trains in "
            "one process on one device."
        )
    if job_addresses is not None and "," in job_addresses:
        raise ValueError(
            f"A job of several machines is not supported: {job_addresses!r}."
        )


class DeviceMesh:
    """Devices in a grid whose axes have names."""

    def __init__(
        self, shape: Sequence[int], axis_names: Sequence[str], devices: Any = None
    ) -> None:
        if not shape or not axis_names:
            raise ValueError(
                f"Shape and axis_names cannot be empty: got the shape {shape} and the "
                f"names {axis_names!r}."
            )
        if len(shape) != len(axis_names):
            raise ValueError(
                "Shape and axis_names should have same size, a name for each axis: "
                f"got the shape {shape} and the names {axis_names}."
            )
        every = np.array(list_devices() if devices is None else devices)
        if math.prod(shape) != every.size:
            raise ValueError(
                f"Shape does not match the number of devices: {shape} needs "
                f"{math.prod(shape)}, got {every.size}."
            )
        self.shape, self.axis_names = shape, axis_names
        self.devices = every.reshape(shape)

    def __repr__(self) -> str:
        return f"<DeviceMesh shape={self.shape}, axis_names={self.axis_names}>"


class TensorLayout:
    """Which axis of a mesh each axis of a tensor is spread over; None for none."""

    def __init__(
        self, axes: Sequence[str | None], device_mesh: DeviceMesh | None = None
    ) -> None:
        self.axes = tuple(axes)
        self._device_mesh: DeviceMesh | None = None
        if device_mesh is not None:
            self.device_mesh = device_mesh

    @property
    def device_mesh(self) -> DeviceMesh | None:
        """The mesh, which can be set once."""
        return self._device_mesh

    @device_mesh.setter
    def device_mesh(self, device_mesh: DeviceMesh) -> None:
        if self._device_mesh is not None:
            raise ValueError(f"The mesh is set already: {self._device_mesh}.")
        unknown = {*self.axes} - {None, *device_mesh.axis_names}
        if unknown:
            raise ValueError(
                "Invalid axis names for Layout: the mesh has no axes "
                f"{sorted(map(str, unknown))}; it has {list(device_mesh.axis_names)}."
            )
        self._device_mesh = device_mesh

    def __repr__(self) -> str:
        return f"<TensorLayout axes={self.axes}, device_mesh={self.device_mesh}>"


class LayoutMap(MutableMapping[str, Any]):
    """Layouts by the path of a variable, or by an expression that matches it."""

    def __init__(self, device_mesh: DeviceMesh) -> None:
        self._layouts: dict[str, TensorLayout] = {}
        self.device_mesh = device_mesh

    def __getitem__(self, key: str) -> TensorLayout | None:
        if key in self._layouts:
            return self._layouts[key]
        matching = [known for known in self._layouts if re.fullmatch(known, key)]
        if len(matching) > 1:
            raise ValueError(f"Path {key!r} matches multiple layout keys: {matching}.")
        return self._layouts[matching[0]] if matching else None

    def __setitem__(self, key: str, layout: Any) -> None:
        if key in self._layouts:
            raise ValueError(
                f"{key} already exist in the map, with the layout {self._layouts[key]}."
            )
        if isinstance(layout, tuple):
            layout = TensorLayout(layout)
        if not isinstance(layout, TensorLayout):
            raise ValueError(f"{layout!r} should be a TensorLayout.")
        if layout.device_mesh is None and self.device_mesh is not None:
            layout.device_mesh = self.device_mesh
        self._layouts[key] = layout

    def __delitem__(self, key: str) -> None:
        del self._layouts[key]

    def __len__(self) -> int:
        return len(self._layouts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._layouts)


class Distribution:
    """How data and variables are spread over a mesh."""

    num_processes = 1
    data_shard_id = 0

    def __init__(
        self,
        device_mesh: DeviceMesh,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        self.device_mesh, self.batch_dim_name = device_mesh, batch_dim_name
        self.auto_shard_dataset = auto_shard_dataset

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Use this distribution in a block."""
        before = distribution()
        set_distribution(self)
        try:
            yield
        finally:
            set_distribution(before)

    def get_data_layout(self, data_shape: Sequence[int]) -> TensorLayout:
        """Return the layout of data: spread by the row."""
        axes = [self.batch_dim_name, *([None] * (len(data_shape) - 1))]
        return TensorLayout(axes, self.device_mesh)

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        """Return the layout of a variable: a copy on each device."""
        return TensorLayout([None] * len(variable.shape), self.device_mesh)

    def distribute_dataset(self, dataset: Any) -> Any:
        """Return the data: there is a single process."""
        return dataset

    def __repr__(self) -> str:
        return f"<{type(self).__name__} device_mesh={self.device_mesh}>"


class DataParallel(Distribution):
    """The same model on every device, each with its share of the rows."""

    def __init__(
        self,
        device_mesh: DeviceMesh | None = None,
        devices: Any = None,
        auto_shard_dataset: bool = True,
    ) -> None:
        if device_mesh is not None and not isinstance(device_mesh, DeviceMesh):
            raise ValueError(
                f"`device_mesh` must be a DeviceMesh, got {device_mesh!r}."
            )
        if device_mesh is None:
            every = np.array(list_devices() if devices is None else devices)
            device_mesh = DeviceMesh(every.shape, [_BATCH], every)
        if device_mesh.devices.ndim != 1:
            warnings.warn(
                f"A mesh of {device_mesh.devices.ndim} axes: rows are spread over the "
                "first.",
                stacklevel=2,
            )
        super().__init__(device_mesh, device_mesh.axis_names[0], auto_shard_dataset)

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are."""
        return self.device_mesh.devices.size

    def get_tensor_layout(self, path: str) -> None:
        """Return None: the outputs of layers are not divided."""
        return None


class ModelParallel(Distribution):
    """Variables spread over the devices by a map."""

    def __init__(
        self,
        *,
        layout_map: LayoutMap | None = None,
        batch_dim_name: str | None = None,
        auto_shard_dataset: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs.pop("device_mesh", None)  # the map has it
        if kwargs:
            raise TypeError(f"ModelParallel does not know {', '.join(kwargs)}.")
        if not isinstance(layout_map, LayoutMap):
            raise ValueError(f"`layout_map` must be a LayoutMap, got {layout_map!r}.")
        mesh = layout_map.device_mesh
        super().__init__(mesh, batch_dim_name or mesh.axis_names[0], auto_shard_dataset)
        self._layout_map = layout_map

    @property
    def num_model_replicas(self) -> int:
        """How many copies of the model there are."""
        names = list(self.device_mesh.axis_names)
        return self.device_mesh.shape[names.index(str(self.batch_dim_name))]

    def get_variable_layout(self, variable: Any) -> TensorLayout:
        layout = self._layout_map[variable.path]
        return super().get_variable_layout(variable) if layout is None else layout

    def get_tensor_layout(self, path: str) -> TensorLayout | None:
        """Return the layout of what a layer gives, None if there is none."""
        return self._layout_map[path]


def distribute_tensor(tensor: Any, layout: Any) -> Any:
    """Return the tensor: it is on the only device."""
    if layout is not None:
        _refuse_several(getattr(layout, "device_mesh", None))
    return tensor


def distribution() -> Any:
    """Return what `set_distribution` set, None without."""
    return _active[0]


def set_distribution(value: Any) -> None:
    """Set how models are spread; more than one device is refused."""
    _refuse_several(getattr(value, "device_mesh", None))
    _active[0] = value


def _refuse_several(mesh: DeviceMesh | None) -> None:
    if mesh is not None and mesh.devices.size > 1:
        raise ValueError(
            f"{mesh} has {mesh.devices.size} devices, but Ganglion trains on one: use "
            f"`DeviceMesh((1,), ['batch'], {list_devices()})`, or leave the "
            "distribution out."
        )
