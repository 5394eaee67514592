"""Threads, cache and memory of the CPU backend."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cpu_checks import everything_shared, ran, same, step_of_model
from folders import ROOT, SUPPORT_PATHS
from step_programs import step_of

from ganglion import config, layers, models, utils
from ganglion.compiler import cache, reference
from ganglion.compiler.cpu import backend, jit, tuning
from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu.backend import Arenas
from ganglion.compiler.cpu.emit import form_of
from ganglion.compiler.cpu.passes.barriers import place_barriers, unguarded
from ganglion.compiler.cpu.passes.fill_intervals import fill_intervals
from ganglion.compiler.cpu.pipeline import build, verify
from ganglion.compiler.cpu.plan import Execution, place_in_arena
from ganglion.compiler.ir.graph import fixed
from ganglion.compiler.plan.kernels import Loop
from ganglion.compiler.plan.plan import PlanError
from ganglion.training.fit_loop import CHUNK_SECONDS, ChunkSizer

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    return tmp_path / "kernels"


def everything_model():
    """Return a model of all that could make runs differ."""
    return models.Sequential(
        [
            layers.Input((9, 7, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(17, 3, padding="same"),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(10, activation="softmax"),
        ]
    )


def trained(epochs=2, rows=150):
    """Return the weights after some epochs; the last batch of each is short."""
    utils.set_random_seed(3)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (rows, 9, 7, 3)).astype("uint8")
    y = rng.integers(0, 10, rows)
    model = everything_model()
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=32, epochs=epochs, verbose=0, shuffle=True)
    return [*model.get_weights(), model.predict(x, verbose=0)]


# ---- threads -------------------------------------------------------------------------


def test_any_number_of_threads_gives_the_same_bits(monkeypatch):
    config.set_backend("cpu")
    eager = replace(tuning.CPU, worth_waking=0.0, shared_time=100.0, more_threads=100.0)
    monkeypatch.setattr(tuning, "CPU", eager)
    results = []
    with everything_shared():
        for threads in (1, 2, 3, 4, 2):
            config.set_threads(threads)
            results.append([array.tobytes() for array in trained()])
    assert all(result == results[0] for result in results[1:])


def test_bits_do_not_depend_on_who_owns_a_small_kernel():
    config.set_backend("cpu")
    config.set_threads(2)
    owned = [array.tobytes() for array in trained(epochs=1)]
    with everything_shared():
        assert [array.tobytes() for array in trained(epochs=1)] == owned


def test_a_pool_lasts_and_follows_the_choices():
    config.set_pin_threads(False)
    with cpu_threads.shared(2) as first:
        pass
    with cpu_threads.shared(2) as again:
        assert again is first
        with cpu_threads.shared(2) as busy:
            assert busy is None
    before = threading.active_count()
    with cpu_threads.shared(3) as larger:
        assert larger is not first
        assert threading.active_count() == before + 1


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cannot pin here")
def test_the_calling_thread_is_only_lent(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    before = os.sched_getaffinity(0)
    with cpu_threads.shared(2) as pool:
        assert pool.cores
        with pool._pinned():
            assert os.sched_getaffinity(0) == {pool.cores[0]}
    assert os.sched_getaffinity(0) == before
    monkeypatch.setenv("GANGLION_PIN", "0")
    with cpu_threads.shared(2) as pool:
        assert not pool.cores


def test_python_threads_may_train_at_once():
    config.set_backend("cpu")
    expected = [array.tobytes() for array in trained(epochs=1)]
    program, data, state = step_of("mnist-mlp", rows=64, batch=16)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    executable.forced_threads = 2
    alone = ran(executable, data, state, 3)
    results = []

    def work():
        results.extend(ran(executable, data, state, 3) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 15
    for result in results:
        same(result, alone)
    assert [array.tobytes() for array in trained(epochs=1)] == expected


def test_fixed_arrays_are_looked_at_once(monkeypatch):
    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    first, second = (fixed({n: a.copy() for n, a in state.items()}) for _ in range(2))
    looked_up = []
    address_of = backend.address_of
    monkeypatch.setattr(
        backend, "address_of", lambda array: looked_up.append(1) or address_of(array)
    )
    executable.run(data, first, 1)
    executable.run(data, second, 1)
    looked_up.clear()
    executable.run(data, second, 1)
    assert len(looked_up) == len(program.data) + len(program.results)
    executable.run(data, first, 1)  # others again, which must be pointed at anew
    same([first], [second])


def test_fixed_arrays_that_are_gone_are_not_mistaken_for_new_ones():
    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    expected, _ = ran(executable, data, state, 1)
    for _ in range(20):  # some have the addresses of those before them
        arrays = fixed({name: array.copy() for name, array in state.items()})
        executable.run(data, arrays, 1)
        same([arrays], [expected])


def test_arrays_need_not_be_contiguous():
    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    data = {name: np.asfortranarray(data[name]) for name in program.data}
    executable = backend.compile(program)
    plain = {name: array.copy() for name, array in state.items()}
    other = {name: np.asfortranarray(array) for name, array in state.items()}
    assert any(not array.flags.c_contiguous for array in other.values())
    for _ in range(2):
        executable.run(data, plain, 1)
        executable.run(data, fixed(other), 1)
    same([other], [plain])


def test_addresses():
    read_only = np.zeros(3)
    read_only.setflags(write=False)
    for array in (np.zeros((2, 3)), np.zeros(()), np.zeros((0, 3)), read_only):
        assert backend.address_of(array) == array.ctypes.data
    narrow = np.zeros(3, ml_dtypes.bfloat16)
    assert backend.address_of(narrow) == narrow.ctypes.data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="cannot fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    data = {name: data[name] for name in program.data}
    executable = backend.compile(program)
    executable.forced_threads = 2
    expected = ran(executable, data, state, 2)
    child = os.fork()
    if child == 0:
        try:
            same(ran(executable, data, state, 2), expected)
        except BaseException:
            os._exit(1)
        os._exit(0)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_small_programs_stay_on_the_calling_thread():
    config.set_threads(2)
    program, _, _ = step_of("mnist-perceptron", rows=2, batch=1)
    assert backend.compile(program)._threads(steps=10_000) == 1
    program, _, _ = step_of("mnist-mlp", rows=256, batch=128)
    large = backend.compile(program)
    assert large._threads(steps=100) == 2
    config.set_threads(1)
    assert large._threads(steps=100) == 1


# ---- barriers ------------------------------------------------------------------------


def planned(name):
    program, _, _ = step_of(name, rows=128, batch=64)
    return build(program)


def test_barriers_stand_only_where_they_must():
    plan = planned("mnist-cnn")
    verify(plan)
    barriers = [number for number, mark in enumerate(plan.execution) if mark.barrier]
    assert 0 < len(barriers) < len(plan.kernels)
    assert "| all wait" in str(plan)
    assert "[one thread]" in str(plan)
    for number in barriers:
        marks = list(plan.execution)
        marks[number] = Execution(marks[number].one_thread, barrier=False)
        with pytest.raises(PlanError, match="no barrier between"):
            verify(replace(plan, execution=tuple(marks)))


def barriers_of(plan):
    return [how.barrier for how in plan.execution]


def test_memory_used_again_costs_no_barrier(monkeypatch):
    """What threads share lives as long as an interval: none is cut by a new user."""
    monkeypatch.setattr(tuning, "CPU", replace(tuning.CPU, worth_sharing=0.0))
    plan = planned("mnist-cnn")
    apart, end = {}, 0
    for buffer in plan.offsets:
        apart[buffer] = end
        end += -(-buffer.nbytes // 64) * 64
    assert plan.arena < end
    spread = place_barriers(replace(plan, offsets=apart, arena=end))
    assert barriers_of(spread) == barriers_of(plan)


def test_memory_of_two_buffers_counts_as_shared():
    """Two buffers at one offset conflict though no kernel names both."""
    plan = planned("mnist-cnn")
    pairs = itertools.pairwise(run.start for run in plan.runs())
    first, second = next(
        (plan.kernels[n].writes()[0].root, plan.kernels[m].writes()[0].root)
        for n, m in pairs
        if not plan.execution[m - 1].barrier
        and all(plan.kernels[k].writes()[0].root.kind == "arena" for k in (n, m))
        and not (plan.execution[n].one_thread and plan.execution[m].one_thread)
    )
    crowded = replace(plan, offsets=plan.offsets | {second: plan.offsets[first]})
    assert unguarded(plan) is None
    assert unguarded(crowded) is not None


def test_intervals_take_what_need_not_wait():
    """Kernels move up to where nothing they touch is written: fewer barriers."""
    program, _, _ = step_of("mnist-cnn", rows=256, batch=128)
    blocked = build(program, after="cache-blocking")
    filled = fill_intervals(blocked)
    assert {*map(id, filled.kernels)} == {*map(id, blocked.kernels)}
    before, after = (
        sum(barriers_of(place_barriers(place_in_arena(plan))))
        for plan in (blocked, filled)
    )
    assert after < before
    verify(place_barriers(place_in_arena(filled)))


# ---- the cache -----------------------------------------------------------------------


def small():
    program, data, state = step_of("mnist-perceptron", rows=8, batch=4)
    return program, {name: data[name] for name in program.data}, state


def compiled_anew(program):
    """Compile a program as a new process would, which has only the cache."""
    jit.forget_functions()
    return backend.compile(program)


def without_the_loop_over_steps():
    """Empty the cache of what a process makes at its first run, and only then."""
    jit.native()
    cache.clear()


def test_a_program_is_compiled_once(empty_cache, monkeypatch):
    program, data, state = small()
    expected = ran(compiled_anew(program), data, state, 2)
    monkeypatch.setattr(jit, "emit_form", None)  # calling it would fail
    same(ran(backend.compile(program), data, state, 2), expected)
    same(ran(compiled_anew(program), data, state, 2), expected)


def test_loops_of_other_sizes_are_not_compiled_again(empty_cache, monkeypatch):
    """Widths and batches are parameters: of loops, nothing is new but sums' order."""
    x = np.random.default_rng(0).normal(size=(75, 11)).astype("float32")

    def loops_of(width, rows):
        model = models.Sequential([layers.Dense(width, "tanh"), layers.Dense(1)])
        model.compile("adam", "mse")
        program, _, _ = step_of_model(model, x, x[:, :1], rows, len(x))
        backend.compile(program)
        kernels = build(program).kernels
        return {form_of(k).key for k in kernels if isinstance(k, Loop)}

    known = loops_of(19, 33)
    for width, rows in ((37, 33), (300, 33), (19, 41)):
        assert loops_of(width, rows) <= known


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty"])
def test_a_damaged_entry_is_made_again(empty_cache, damage):
    without_the_loop_over_steps()
    program, data, state = small()
    expected = ran(compiled_anew(program), data, state, 2)
    entries = {path: path.read_bytes() for path in empty_cache.glob("*.program")}
    assert entries
    for path, raw in entries.items():
        changed = raw[:-9] + b"x" + raw[-8:]
        path.write_bytes(
            {"truncated": raw[:-100], "changed": changed, "empty": b""}[damage]
        )
    same(ran(compiled_anew(program), data, state, 2), expected)
    assert all(path.read_bytes() == raw for path, raw in entries.items())


def test_functions_whose_object_file_is_gone_are_made_again(empty_cache, monkeypatch):
    without_the_loop_over_steps()
    program, data, state = small()
    expected = ran(compiled_anew(program), data, state, 2)
    largest = max(empty_cache.glob("*.program"), key=lambda path: path.stat().st_size)
    largest.unlink()  # as `shrink` may, while the kernels' entries remain
    same(ran(compiled_anew(program), data, state, 2), expected)
    monkeypatch.setattr(jit, "object_codes", None)
    same(ran(compiled_anew(program), data, state, 2), expected)


def test_an_entry_under_another_s_name_is_not_run(empty_cache):
    """Its checksum is sound, but it is the code of another kernel."""
    program, data, state = small()
    expected = ran(compiled_anew(program), data, state, 2)
    first, *others = sorted(empty_cache.glob("*.program"))
    swapped = first.read_bytes()
    for path in others:
        path.write_bytes(swapped)
        assert cache.read(path) is None
    same(ran(compiled_anew(program), data, state, 2), expected)
    # The first kernel was found: nobody asked for its code by its text.
    assert sum(path.read_bytes() == swapped for path in others) <= 1


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX")
def test_code_is_kept_where_nobody_else_can_write(empty_cache, monkeypatch):
    path = cache.path_of("entry")
    cache.keep(path, b"code")
    assert empty_cache.stat().st_mode & 0o777 == 0o700
    assert cache.read(path) == b"code"
    for mode in (0o770, 0o707, 0o1777):
        empty_cache.chmod(mode)
        monkeypatch.setattr(cache, "_told", set())
        with pytest.warns(UserWarning, match=r"kernels can be written to by others"):
            assert cache.read(path) is None
        assert cache.read(path) is None  # warned once
        cache.keep(cache.path_of("more"), b"more")
        assert not cache.path_of("more").exists()
    program, data, state = small()
    expected = ran(reference.compile(program), data, state, 1)
    ours = ran(backend.compile(program), data, state, 1)
    for name, array in expected[0].items():
        np.testing.assert_allclose(ours[0][name], array, rtol=1e-5, atol=1e-6)
    empty_cache.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    if empty_cache.stat().st_uid:
        with pytest.warns(UserWarning, match="belongs to somebody else"):
            assert cache.read(path) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX")
def test_a_pipe_in_the_cache_is_no_entry(empty_cache):
    path = cache.path_of("entry")
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    assert cache.read(path) is None
    cache.keep(path, b"code")


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path / "file"))
    program, data, state = small()
    expected = ran(reference.compile(program), data, state, 1)
    ours = ran(backend.compile(program), data, state, 1)
    for name, array in expected[0].items():
        np.testing.assert_allclose(ours[0][name], array, rtol=1e-5, atol=1e-6)


def test_the_oldest_entries_go_first(empty_cache):
    paths = [cache.path_of(f"entry {number}") for number in range(4)]
    for age, path in enumerate(paths):
        cache.keep(path, bytes(1000))
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.contents().count == 4
    assert cache.read(paths[0]) is not None  # used now: the youngest
    cache.shrink(2 * 1032)
    assert [path.exists() for path in paths] == [True, False, False, True]
    assert cache.clear() == 2
    assert cache.contents().size == 0


def test_a_cache_that_grows_is_looked_at(empty_cache, monkeypatch):
    monkeypatch.setattr(cache, "LIMIT", 2 * 1032)
    monkeypatch.setattr(cache, "_CHECK_EVERY", 3500)
    monkeypatch.setattr(cache, "_unchecked", 0)
    counts = []
    for number in range(8):
        cache.keep(cache.path_of(f"entry {number}"), bytes(1000))
        counts.append(cache.contents().count)
    assert counts == [1, 2, 3, 2, 3, 4, 5, 2]


def test_processes_share_the_cache(empty_cache):
    code = (
        f"import sys; sys.path[:0] = {[*SUPPORT_PATHS, str(Path(__file__).parent)]}\n"
        "from test_cpu_runtime import small, ran, backend\n"
        "from ganglion import utils; utils.set_random_seed(0)\n"
        "program, data, state = small()\n"
        "after, _ = ran(backend.compile(program), data, state, 2)\n"
        "import hashlib\n"
        "bits = b''.join(array.tobytes() for array in after.values())\n"
        "print(hashlib.sha256(bits).hexdigest())"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    said = {process.communicate(timeout=120)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(said) == 1
    assert not list(empty_cache.glob("*.part"))


def test_keys_tell_kernels_apart():
    def keys(batch):
        kernels = build(step_of("mnist-mlp", batch=batch)[0]).kernels
        return [form_of(kernel).key for kernel in kernels]

    assert keys(3) == keys(3)
    assert keys(3) != keys(4)
    assert all(keys(3))


# ---- memory --------------------------------------------------------------------------


def resident():
    """Return the bytes of memory that this process holds."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="cannot measure here")
def test_a_thousand_fits_do_not_grow_memory():
    config.set_backend("cpu")
    model = models.Sequential([layers.Input((784,)), layers.Dense(10)])
    model.compile("sgd", "mse")
    x, y = np.zeros((32, 784), "float32"), np.zeros((32, 10), "float32")
    for _ in range(100):
        model.fit(x, y, verbose=0)
    before = resident()
    for _ in range(1000):
        model.fit(x, y, verbose=0)
    # A batch kept from each would be 100 MB.
    assert resident() - before < 10e6


def test_programs_share_the_memory_of_a_step():
    class Owner:
        pass

    arenas, large, small_one = Arenas(), Owner(), Owner()
    arenas.announce(large, 5000)
    arenas.announce(small_one, 1000)
    first = arenas.reserve(5000)
    assert len(first) >= 5000
    assert first.ctypes.data % 64 == 0
    other = arenas.reserve(1000)  # both at once: not the same memory
    assert not np.shares_memory(first, other)
    arenas.release(other)
    arenas.release(first)
    again = arenas.reserve(1000)
    assert again is first
    arenas.release(again)
    del large
    after = arenas.reserve(1000)
    assert len(after) == 1000
    arenas.release(after)
    assert len(arenas.reserve(2000)) == 2000


def test_many_rows_are_predicted_in_chunks(monkeypatch):
    config.set_backend("cpu")
    model = models.Sequential([layers.Input((2,)), layers.Dense(1)])
    x = np.random.default_rng(0).normal(size=(1_000_000, 2)).astype("float32")
    chunks = []
    run = backend.CompiledProgram.run

    def counted(self, data, state, steps, **options):
        chunks.append(steps)
        return run(self, data, state, steps, **options)

    monkeypatch.setattr(backend.CompiledProgram, "run", counted)
    predicted = model.predict(x, verbose=0, batch_size=1000)
    assert sum(chunks) == 1000
    assert len(chunks) > 1
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(predicted, x @ kernel + bias, rtol=1e-5, atol=1e-6)


def test_arrays_that_are_not_contiguous():
    program, data, state = small()
    expected = ran(backend.compile(program), data, state, 2)
    strided = {name: np.asfortranarray(array) for name, array in data.items()}
    after = {name: np.asfortranarray(array) for name, array in state.items()}
    results = backend.compile(program).run(strided, after, 2)
    kernel = next(name for name in after if name.endswith("kernel"))
    assert not after[kernel].flags.c_contiguous
    same(({n: np.ascontiguousarray(a) for n, a in after.items()}, results), expected)


# ---- being stopped -------------------------------------------------------------------


def test_kill_9_then_resume_equals_an_undisturbed_run(tmp_path):
    from command_line import command, run, weights_of

    env = {"SMALL_ROWS": "4000", "SMALL_SAVE_SECONDS": "0", "GANGLION_BACKEND": "cpu"}
    undisturbed, part = tmp_path / "whole.keras", tmp_path / "part.keras"
    options = ("train", "mnist-mlp", "--epochs", 4, "--log", "json")
    assert run(*options, "--save", undisturbed, **env).returncode == 0
    process = subprocess.Popen(
        command(*options, "--save", part),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **env},
    )
    for _ in range(2):  # the first epoch has been saved when the second has ended
        process.stdout.readline()
    time.sleep(0.05)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    resumed = run(*options, "--resume", part, "--save", part, **env)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.count("\n") < 4  # it went on, and did not start again
    for a, b in zip(weights_of(undisturbed), weights_of(part), strict=True):
        np.testing.assert_array_equal(a, b)


def test_ctrl_c_ends_a_compiled_run():
    from command_line import command

    env = {"SMALL_ROWS": "4000", "GANGLION_BACKEND": "cpu"}
    process = subprocess.Popen(
        command("train", "mnist-mlp", "--epochs", 100_000, "--log", "json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **env},
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130


def test_chunks_never_get_much_longer_than_planned():
    """Ctrl-C is answered between chunks: one that runs away would not hear it."""
    sizer = ChunkSizer(each_batch=False)
    seconds_a_step, last = 1e-5, 1.0
    for _ in range(20):
        steps = sizer.chunk(10**9)
        assert steps * seconds_a_step <= 1.1 * CHUNK_SECONDS or steps == 1
        sizer.took(steps, steps * seconds_a_step)
        last = steps * seconds_a_step
    assert last > 0.5 * CHUNK_SECONDS


def test_the_key_of_compiled_code_covers_every_file_of_the_compiler():
    used = {
        Path(module.__file__).resolve()
        for name, module in list(sys.modules.items())
        if name.startswith("ganglion.compiler.")
    }
    assert len(used) > 50  # all that compiling has imported by now
    assert used <= {path.resolve() for path in cache.sources()}
