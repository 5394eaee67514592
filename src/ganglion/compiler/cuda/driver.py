"""The narrow interface to a GPU: everything that the CUDA backend asks of a driver.

`Driver` is the protocol; `CudaDriver` implements it with cuda.core and cuda.bindings.
Tests substitute drivers of their own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ganglion.compiler.cuda.target import GpuSpec

if TYPE_CHECKING:
    from concurrent.futures import Future

INSTALL = "pip install 'ganglion-nn[cuda]'"
Handle = Any


class OutOfMemory(RuntimeError):  # noqa: N818 (reads well where it is caught)
    """An allocation on the device has failed."""


class Driver(Protocol):
    """A GPU, as the backend sees it."""

    name: str
    spec: GpuSpec
    cores: int  # of the host, for compiling in parallel

    def use(self) -> None:
        """Make the device current in this thread."""

    def compiler(self) -> str:
        """Return everything that machine code depends on besides its source."""

    def compile(self, source: str) -> bytes:
        """Compile CUDA C to machine code."""

    def load(
        self, code: bytes, functions: Sequence[str]
    ) -> tuple[Handle, dict[str, Handle]]:
        """Load machine code; return it and its functions."""

    def unload(self, module: Handle) -> None:
        """Unload machine code that is no longer used."""

    def allow_shared(self, function: Handle, nbytes: int) -> None:
        """Raise the limit of a function's shared memory."""

    def prefer_shared(self, function: Handle) -> None:
        """Prefer shared memory to L1 cache while a function runs.

        Launches overlap on a multiprocessor only if they divide its memory alike.
        """

    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory; raise `OutOfMemory` if there is none."""

    def free(self, address: int) -> None:
        """Give memory back."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Fill memory with a byte."""

    def upload(self, address: int, array: np.ndarray) -> None:
        """Start copying an array to the device, ordered with launches."""

    def download(self, array: np.ndarray, address: int) -> None:
        """Start copying from the device into an array, complete after `wait`."""

    def copy(self, address: int, from_address: int, nbytes: int) -> None:
        """Start copying from memory of the device to other memory of it."""

    def copy_rows(
        self,
        address: int,
        stride: int,
        from_address: int,
        from_stride: int,
        shape: tuple[int, int],
    ) -> None:
        """Start copying rows of bytes, that are a stride apart, on the device."""

    def upload_rows(self, address: int, rows: np.ndarray, stride: int) -> None:
        """Copy rows of bytes to addresses on the device that are a stride apart."""

    def download_rows(self, rows: np.ndarray, address: int, stride: int) -> None:
        """Copy rows of bytes from addresses on the device that are a stride apart."""

    def host_array(self, nbytes: int) -> np.ndarray:
        """Return pinned memory of the host, from and to which copies are fast."""

    def free_host(self, array: np.ndarray) -> None:
        """Free pinned memory of the host; other arrays are ignored."""

    def launch(
        self,
        function: Handle,
        blocks: tuple[int, int],
        threads: int,
        shared: int,
        arguments: Any,
    ) -> None:
        """Launch a function on a grid of (blocks, models).

        Its blocks may start while the previous launch is still running.
        """

    def begin_capture(self) -> None:
        """Record launches from now on instead of running them."""

    def end_capture(self) -> Handle:
        """Return the recorded launches, ready to be replayed."""

    def replay(self, graph: Handle) -> None:
        """Run recorded launches."""

    def forget(self, graph: Handle) -> None:
        """Destroy a recording."""

    def wait(self) -> None:
        """Wait for all launches and copies."""

    def memory(self) -> tuple[int, int]:
        """Return the free and the total bytes of the device."""

    def arguments(self, addresses: Sequence[int]) -> Any:
        """Return argument values in the form that `launch` takes."""


@cache
def unavailable_reason() -> str | None:
    """Return why no GPU is usable here, None if there is a usable GPU."""
    for package in ("cuda.bindings", "cuda.core"):
        try:
            spec = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            return f"{package} is not installed; {INSTALL}"
    try:
        from cuda.bindings import driver as cu

        (status,) = cu.cuInit(0)
    except Exception as error:  # the driver's library itself may be missing
        return f"no NVIDIA driver was found ({error})"
    if status != cu.CUresult.CUDA_SUCCESS:
        return f"the NVIDIA driver does not start ({status.name})"
    status, count = cu.cuDeviceGetCount()
    if status != cu.CUresult.CUDA_SUCCESS or not count:
        return "the NVIDIA driver sees no GPU"
    capability = _capability(cu, 0)
    if capability < 75:
        return (
            f"the GPU has compute capability {capability / 10}, but CUDA 13 compiles "
            "for 7.5 and above"
        )
    return None


def _capability(cu: Any, device: Any) -> int:
    def attribute(name: str) -> int:
        name = f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{name}"
        kind = getattr(cu.CUdevice_attribute, name)
        return int(cu.cuDeviceGetAttribute(kind, device)[1])

    return attribute("MAJOR") * 10 + attribute("MINOR")


@cache
def start() -> Future[CudaDriver]:
    """Start initializing the GPU in the background: it takes a while."""
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    pool = ThreadPoolExecutor(1)
    started = pool.submit(CudaDriver)
    pool.shutdown(wait=False)
    return started


def driver() -> Driver:
    """Return the GPU of this process."""
    try:
        return start().result()
    except Exception:
        start.cache_clear()  # a later attempt may succeed
        raise


OPTIONS = {"std": "c++17"}  # of NVRTC, besides the architecture


def compile_source(source: str, architecture: str, kind: str = "cubin") -> bytes:
    """Compile CUDA C by NVRTC; needs no GPU. `kind` is "cubin" or "ptx"."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch=architecture, **OPTIONS)
    result = Program(source, "c++", options).compile(kind)
    return bytes(result.code)


def compiler(capability: int) -> str:
    """Return the versions of NVRTC and cuda-core, the architecture and options."""
    from importlib.metadata import version  # slow to import

    from cuda.bindings import nvrtc

    _, major, minor = nvrtc.nvrtcVersion()
    caller = version("cuda-core")
    options = ", ".join(f"{name} {value}" for name, value in OPTIONS.items())
    return f"NVRTC {major}.{minor}, cuda-core {caller}, sm_{capability}, {options}"


def read_compiler() -> int:
    """Read the files of NVRTC into the page cache; return how many bytes they have.

    Reading them sequentially takes a tenth of the time that the first compilation would
    spend on page faults. Errors are ignored: the first compilation reports them.
    """
    count, buffer = 0, bytearray(1 << 20)
    with suppress(Exception):
        from cuda.pathfinder import load_nvidia_dynamic_lib

        library = Path(load_nvidia_dynamic_lib("nvrtc").abs_path)
        for path in (library, *library.parent.glob("*nvrtc-builtins*")):
            with path.open("rb", buffering=0) as file:
                while read := file.readinto(buffer):
                    count += read
    return count


class CudaDriver:
    """The first GPU of this machine, through CUDA's driver; see `Driver`."""

    def __init__(self) -> None:
        from cuda.bindings import driver as cu

        threading.Thread(target=read_compiler).start()
        self._cu = cu
        self._importing = threading.Lock()
        self._pinned: set[int] = set()
        self._compiler: str | None = None
        self.cores = os.cpu_count() or 1
        self._check(cu.cuInit(0))
        self._device = self._check(cu.cuDeviceGet(0))
        context = self._check(cu.cuDevicePrimaryCtxRetain(self._device))
        self._context = context
        self._check(cu.cuCtxSetCurrent(context))
        name = self._check(cu.cuDeviceGetName(128, self._device))
        self.name = name.split(b"\0")[0].decode()
        self.spec = GpuSpec(
            _capability(cu, self._device),
            processors=self._attribute("MULTIPROCESSOR_COUNT"),
            shared_per_block=self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            shared_per_processor=self._attribute(
                "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"
            ),
            l2_bytes=self._attribute("L2_CACHE_SIZE"),
        )
        flag = cu.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = self._check(cu.cuStreamCreate(flag))
        self._overlap = self.spec.capability >= 90
        self._attributes = self._launch_attributes()

    def _check(self, answer: tuple[Any, ...]) -> Any:
        status, *values = answer
        if status != self._cu.CUresult.CUDA_SUCCESS:
            if status == self._cu.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
                raise OutOfMemory(status.name)
            _, text = self._cu.cuGetErrorString(status)
            raise RuntimeError(
                f"CUDA: {status.name} ({(text or b'').decode()}). The GPU may be "
                "unusable for this process: restart the program."
            )
        if not values:
            return None
        return values[0] if len(values) == 1 else values

    def _attribute(self, name: str) -> int:
        attribute = getattr(self._cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._check(self._cu.cuDeviceGetAttribute(attribute, self._device)))

    def use(self) -> None:
        self._check(self._cu.cuCtxSetCurrent(self._context))

    def compiler(self) -> str:
        with self._importing:
            if self._compiler is None:
                self._compiler = compiler(self.spec.capability)
            return self._compiler

    def compile(self, source: str) -> bytes:
        with self._importing:  # threads must not race for the first import
            import cuda.core  # noqa: F401
        return compile_source(source, f"sm_{self.spec.capability}")

    def load(
        self, code: bytes, functions: Sequence[str]
    ) -> tuple[Handle, dict[str, Handle]]:
        module = self._check(self._cu.cuModuleLoadData(code))
        return module, {
            name: self._check(self._cu.cuModuleGetFunction(module, name.encode()))
            for name in functions
        }

    def unload(self, module: Handle) -> None:
        with suppress(RuntimeError):
            self._check(self._cu.cuModuleUnload(module))

    def allow_shared(self, function: Handle, nbytes: int) -> None:
        kinds = self._cu.CUfunction_attribute
        attribute = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self._check(self._cu.cuFuncSetAttribute(function, attribute, nbytes))

    def prefer_shared(self, function: Handle) -> None:
        kinds = self._cu.CUfunction_attribute
        attribute = kinds.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        self._check(self._cu.cuFuncSetAttribute(function, attribute, 100))

    def allocate(self, nbytes: int) -> int:
        return int(self._check(self._cu.cuMemAlloc(max(nbytes, 256))))

    def free(self, address: int) -> None:
        self._check(self._cu.cuMemFree(address))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._check(self._cu.cuMemsetD8Async(address, byte, nbytes, self._stream))

    def upload(self, address: int, array: np.ndarray) -> None:
        pointer = array.ctypes.data
        if array.nbytes:
            self._check(
                self._cu.cuMemcpyHtoDAsync(address, pointer, array.nbytes, self._stream)
            )

    def download(self, array: np.ndarray, address: int) -> None:
        pointer = array.ctypes.data
        if array.nbytes:
            self._check(
                self._cu.cuMemcpyDtoHAsync(pointer, address, array.nbytes, self._stream)
            )

    def copy(self, address: int, from_address: int, nbytes: int) -> None:
        copy = self._cu.cuMemcpyDtoDAsync
        self._check(copy(address, from_address, nbytes, self._stream))

    def copy_rows(
        self,
        address: int,
        stride: int,
        from_address: int,
        from_stride: int,
        shape: tuple[int, int],
    ) -> None:
        copy = self._cu.CUDA_MEMCPY2D()
        copy.Height, copy.WidthInBytes = shape
        device = self._cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcMemoryType = copy.dstMemoryType = device
        copy.srcDevice, copy.srcPitch = from_address, from_stride
        copy.dstDevice, copy.dstPitch = address, stride
        self._check(self._cu.cuMemcpy2DAsync(copy, self._stream))

    def upload_rows(self, address: int, rows: np.ndarray, stride: int) -> None:
        self._copy_rows(address, rows, stride, upload=True)

    def download_rows(self, rows: np.ndarray, address: int, stride: int) -> None:
        self._copy_rows(address, rows, stride, upload=False)

    def _copy_rows(
        self, address: int, rows: np.ndarray, stride: int, upload: bool
    ) -> None:
        cu, host = self._cu, rows.ctypes.data
        kinds = cu.CUmemorytype
        copy = cu.CUDA_MEMCPY2D()
        copy.Height, copy.WidthInBytes = rows.shape
        copy.srcMemoryType, copy.dstMemoryType = (
            (kinds.CU_MEMORYTYPE_HOST, kinds.CU_MEMORYTYPE_DEVICE)
            if upload
            else (kinds.CU_MEMORYTYPE_DEVICE, kinds.CU_MEMORYTYPE_HOST)
        )
        if upload:
            copy.srcHost, copy.srcPitch = host, rows.strides[0]
            copy.dstDevice, copy.dstPitch = address, stride
        else:
            copy.dstHost, copy.dstPitch = host, rows.strides[0]
            copy.srcDevice, copy.srcPitch = address, stride
        self._check(cu.cuMemcpy2DAsync(copy, self._stream))

    def host_array(self, nbytes: int) -> np.ndarray:
        pointer = int(self._check(self._cu.cuMemAllocHost(max(nbytes, 1))))
        self._pinned.add(pointer)
        raw = (ctypes.c_uint8 * max(nbytes, 1)).from_address(pointer)
        return np.ctypeslib.as_array(raw)[:nbytes]

    def free_host(self, array: np.ndarray) -> None:
        pointer = array.ctypes.data
        if pointer in self._pinned:
            self._pinned.remove(pointer)
            self._check(self._cu.cuMemFreeHost(pointer))

    def _launch_attributes(self) -> Any:
        """Return the attributes with which a launch may overlap the previous one."""
        cu = self._cu
        attribute = cu.CUlaunchAttribute()
        attribute.id = (
            cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        attribute.value.programmaticStreamSerializationAllowed = 1
        return [attribute]

    def arguments(self, addresses: Sequence[int]) -> Any:
        values = np.array(addresses, np.uint64)
        pointers = values.ctypes.data + 8 * np.arange(len(values), dtype=np.uint64)
        pointers = np.ascontiguousarray(pointers, np.uint64)
        return int(pointers.ctypes.data) if len(values) else 0, values, pointers

    def launch(
        self,
        function: Handle,
        blocks: tuple[int, int],
        threads: int,
        shared: int,
        arguments: Any,
    ) -> None:
        cu = self._cu
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY = blocks
        config.gridDimZ = 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = shared
        config.hStream = self._stream
        if self._overlap:
            config.attrs, config.numAttrs = self._attributes, 1
        self._check(cu.cuLaunchKernelEx(config, function, arguments[0], 0))

    def begin_capture(self) -> None:
        mode = self._cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._check(self._cu.cuStreamBeginCapture(self._stream, mode))

    def end_capture(self) -> Handle:
        cu = self._cu
        graph = self._check(cu.cuStreamEndCapture(self._stream))
        executable = self._check(cu.cuGraphInstantiate(graph, 0))
        self._check(cu.cuGraphDestroy(graph))
        self._check(cu.cuGraphUpload(executable, self._stream))
        return executable

    def replay(self, graph: Handle) -> None:
        self._check(self._cu.cuGraphLaunch(graph, self._stream))

    def forget(self, graph: Handle) -> None:
        with suppress(RuntimeError):
            self._check(self._cu.cuGraphExecDestroy(graph))

    def wait(self) -> None:
        self._check(self._cu.cuStreamSynchronize(self._stream))

    def memory(self) -> tuple[int, int]:
        free, total = self._check(self._cu.cuMemGetInfo())
        return int(free), int(total)

    def stopwatch(self) -> tuple[Any, Any]:
        """Return two events for timing."""
        first, last = (self._check(self._cu.cuEventCreate(0)) for _ in range(2))
        return first, last

    def mark(self, event: Any) -> None:
        """Record an event behind everything that was launched so far."""
        self._check(self._cu.cuEventRecord(event, self._stream))

    def milliseconds(self, first: Any, last: Any) -> float:
        """Return the time between two events."""
        self._check(self._cu.cuEventSynchronize(last))
        return float(self._check(self._cu.cuEventElapsedTime(first, last)))
