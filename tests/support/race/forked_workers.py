"""Workers of fake engines as forks of one process that has imported all they need.

Python and Ganglion take half a second to start, in each of some hundred workers. Real
engines, and fakes on a cluster, are still programs of their own.
"""

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection

from ganglion.race.engines import process

FAKES = ("race_fakes", "bench_fakes")
NUMPY = ("ganglion.race.engines.ganglion", "numpy")
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(
    ["__main__", *FAKES, "ganglion.recipes", "ganglion.race.engines.worker"]
)
_start_program = process.start_worker


def start_worker(command, environment, log):
    """Take the place of `process.start_worker`."""
    module, form = command[-2:]
    is_light = module in FAKES or (module, form) == NUMPY
    start = Forked if is_light else _start_program
    return start(command, environment, log)


class Forked:
    """As much of a `subprocess.Popen` as `Process` needs."""

    def __init__(self, command, environment, log):
        (stdin, told), (heard, stdout), (ready, begun) = (os.pipe() for _ in range(3))
        stderr = os.dup(log.fileno())
        ends = [Connection(fd) for fd in (stdin, stdout, stderr, begun)]
        self._fork = _forks.Process(
            target=_work, args=(command[-3:], environment, *ends), daemon=True
        )
        self._fork.start()
        for end in ends:
            end.close()
        with open(ready, "rb") as file:
            file.read(1)  # it leads a group of its own now, and can be ended
        self.stdin, self.stdout = os.fdopen(told, "w"), os.fdopen(heard)
        self.pid = self._fork.pid

    def poll(self):
        return self._fork.exitcode

    def wait(self):
        self._fork.join()
        return self._fork.exitcode


def _work(arguments, environment, stdin, stdout, stderr, begun):
    for number, end in enumerate((stdin, stdout, stderr)):
        os.dup2(end.fileno(), number)
    os.setsid()
    os.write(begun.fileno(), b"!")
    os.closerange(3, 256)
    sys.stdin, sys.stdout, sys.stderr = map(os.fdopen, range(3), "rww")
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    from ganglion.race.engines import worker

    worker.main()
