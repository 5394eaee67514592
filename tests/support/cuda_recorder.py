"""A driver that records what it is asked, and does nothing."""

import numpy as np

from ganglion.compiler.cuda.driver import OutOfMemory
from ganglion.compiler.cuda.target import GpuSpec


class Recorder:
    """A driver that writes down what it is asked, and computes nothing."""

    name, spec, cores = "a recorder", GpuSpec(), 2

    def __init__(self, room=1 << 40):
        self.log, self.compiled, self.room, self.next = [], 0, room, 4096
        self._captured, self.modules = None, []
        self.pinned, self.compiled_by = 0, "a recorder of sm_90"

    def use(self):
        pass

    def compiler(self):
        return self.compiled_by

    def compile(self, source):
        self.compiled += 1
        return source.encode()

    def load(self, code, functions):
        self.modules.append(code)
        return code, {name: name for name in functions}

    def unload(self, module):
        self.modules.remove(module)

    def allow_shared(self, function, nbytes):
        self.log.append(("shared", function))

    def prefer_shared(self, function):
        self.log.append(("prefers shared", function))

    def allocate(self, nbytes):
        if nbytes > self.room:
            raise OutOfMemory
        self.room -= nbytes
        self.next += -(-nbytes // 4096) * 4096
        return self.next

    def free(self, address):
        self.log.append(("free", address))

    def fill(self, address, byte, nbytes):
        self.log.append(("fill", nbytes))

    def upload(self, address, array):
        self.log.append(("upload", array.nbytes))

    def download(self, array, address):
        self.log.append(("download", array.nbytes))

    def host_array(self, nbytes):
        self.pinned += nbytes
        return np.zeros(nbytes, np.uint8)

    def free_host(self, array):
        self.pinned -= array.nbytes

    def arguments(self, addresses):
        assert all(address > 0 for address in addresses)
        return tuple(addresses)

    def launch(self, function, blocks, threads, shared, arguments):
        entry = ("launch", function)
        (self.log if self._captured is None else self._captured).append(entry)

    def begin_capture(self):
        assert self._captured is None
        self._captured = []

    def end_capture(self):
        captured, self._captured = self._captured, None
        self.log.append(("graph", len(captured)))
        return captured

    def replay(self, graph):
        self.log.append(("replay", [name for _, name in graph]))

    def forget(self, graph):
        self.log.append(("forget", len(graph)))

    def wait(self):
        pass

    def memory(self):
        return self.room, 1 << 40

    def of(self, kind):
        return [value for name, value in self.log if name == kind]
