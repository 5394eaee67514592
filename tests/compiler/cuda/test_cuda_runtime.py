"""The CUDA runtime with drivers that only play: order, recordings, copies, memory."""

import copy
import gc
import os
import signal
import threading
import time

import cuda_host
import numpy as np
import pytest
from cpu_checks import op_program, pure, ran, same
from cuda_checks import compiled
from cuda_recorder import Recorder
from step_programs import step_of

import ganglion as keras
from ganglion import config
from ganglion.compiler import device_arrays, reference, registry
from ganglion.compiler.cuda import backend, code
from ganglion.compiler.cuda import driver as cuda_driver
from ganglion.compiler.cuda import memory as cuda_memory
from ganglion.compiler.cuda.backend import MAX_BINDINGS
from ganglion.compiler.cuda.memory import Memory
from ganglion.compiler.ir import pointwise
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.table import OPS

pytestmark = pytest.mark.usefixtures("launches")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")
    return tmp_path / "kernels"


@pytest.fixture
def training():
    """Return a training step that a recorder runs, and what it runs on."""
    program, data, state = step_of("mnist-mlp", rows=256, batch=64)
    driver = Recorder()
    executable = backend.CompiledProgram(program, Memory(driver))
    executable.program = program
    data = {name: data[name] for name in program.data}
    driver.log.clear()
    return (
        executable,
        driver,
        data,
        {name: array.copy() for name, array in state.items()},
    )


@pytest.fixture
def driver(monkeypatch):
    """Let models run on a recorder; return it."""
    recorder = Recorder()
    memory = Memory(recorder)
    monkeypatch.setattr(backend, "unavailable_reason", lambda: None)
    monkeypatch.setattr(backend, "memory", lambda: memory)
    config.set_backend("cuda")
    return recorder


# ---- launches ----------------------------------------------------------------------


def test_steps_are_recorded_once_and_replayed(training):
    program, driver, data, state = training
    program.run(data, state, 100)
    calls = [call.function for call in program.emission.every]
    opening, *replayed = driver.of("replay")
    assert opening == [call.function for call in program.emission.first]
    many = len(replayed[0]) // len(calls)
    assert many > 1
    assert replayed[0] == calls * many  # every launch of every step, in order
    assert sum(map(len, replayed)) == 99 * len(calls)  # the last one is another
    recorded = len(driver.of("graph"))
    assert recorded <= 7  # 32, 16, ..., 1 steps, and what comes before the first
    program.run(data, state, 100)
    assert len(driver.of("graph")) == recorded
    assert not driver.of("forget")


def test_clear_session_gives_back_what_programs_share(training):
    program, driver, data, state = training
    program.run(data, state, 1)
    memory = program._memory
    arena, size = memory._arena
    assert size
    spare = memory.allocate(5000, "something")
    memory.release(spare, 5000)
    keras.utils.clear_session(free_memory=False)
    assert not driver.of("free")
    keras.utils.clear_session()
    assert set(driver.of("free")) >= {arena, spare}
    assert memory._arena == (0, 0)
    driver.log.clear()
    program.run(data, state, 1)  # it goes on where it is given memory anew
    assert memory._arena[0] not in (0, arena)
    assert driver.of("launch")


def test_what_has_been_sent_and_awaited_is_sent_again_at_once(training):
    program, driver, data, state = training
    waits = []
    driver.wait = lambda: waits.append(len(driver.of("upload")))
    program.run(data, state, 1)
    driver.log.clear()
    waits.clear()
    state["position"][...] = 64
    program.run(data, state, 1)
    assert driver.of("upload") == [state["position"].nbytes]
    assert 0 not in waits  # nothing had to be awaited before
    memory, position = program._memory, state["position"]
    mirror = memory.mirror(position, "position", False)
    waits.clear()
    for value in (1, 2):  # sent twice without a run between
        position[...] = value
        memory.refresh(position, mirror, False)
    assert waits == [2]  # the second waits for the first copy


def test_a_single_step_is_not_worth_a_recording(training):
    program, driver, data, state = training
    program.run(data, state, 1)
    emission = program.emission
    # What never changes is first, for steps of either kind.
    calls = (*2 * emission.once, *emission.first, *emission.last)
    assert driver.of("launch") == [call.function for call in calls]
    driver.log.clear()
    program.run(data, state, 2)
    calls = (*emission.first, *emission.every, *emission.last)
    assert driver.of("launch") == [call.function for call in calls]
    assert not driver.of("graph")


def test_odd_steps_read_what_even_ones_have_written(training):
    program, _, data, state = training
    program.run(data, state, 1)
    emission, twice = program.emission, program.emission.schedule.double_buffered
    (binding,) = program._bindings.values()
    assert twice
    for call in emission.every:
        for number, buffer in enumerate(call.buffers):
            places = [binding.arguments[call, odd][number] for odd in (0, 1)]
            assert (places[0] != places[1]) == (buffer.name in twice), buffer.name


def test_arrays_at_a_few_places_are_recorded_once_each(training):
    program, driver, data, state = training
    program.run(data, state, 50)
    recorded = len(driver.of("graph"))
    others = [{n: a.copy() for n, a in state.items()} for _ in range(MAX_BINDINGS)]
    for _ in range(2):
        for arrays in (state, *others[1:]):
            program.run(data, arrays, 50)
    assert len(driver.of("graph")) == MAX_BINDINGS * recorded
    assert not driver.of("forget")
    program.run(data, others[0], 50)  # one too many: the first place is let go
    assert len(driver.of("forget")) == recorded
    program.run(data, others[1], 50)
    assert len(driver.of("graph")) == (MAX_BINDINGS + 1) * recorded


def test_fits_on_the_same_data_record_nothing_anew(driver):
    model = keras.Sequential([keras.Input((2000,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((640, 2000), "float32"), np.zeros((640, 1), "float32")

    def seen():
        driver.log.clear()
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        return driver.of("upload").count(x.nbytes), len(driver.of("graph"))

    seen()
    room = driver.room
    gc.disable()  # nor is memory taken that only the garbage collector gives back
    try:
        assert [seen() for _ in range(4)] == 4 * [(1, 0)]
    finally:
        gc.enable()
    assert driver.room == room
    x.setflags(write=False)  # nobody can have changed it
    assert [seen() for _ in range(3)] == [(1, 0), (0, 0), (0, 0)]


# ---- copies ------------------------------------------------------------------------


def test_only_what_has_changed_is_copied(training):
    program, driver, data, state = training
    program.run(data, state, 1)
    assert len(driver.of("upload")) == len(data) + len(state)
    driver.log.clear()
    program.run(data, state, 1)
    assert not driver.of("upload")
    kernel = next(name for name in state if name.endswith("dense/kernel"))
    state[kernel][3, 4] += 1
    program.run(data, state, 1)
    assert driver.of("upload") == [state[kernel].nbytes]
    assert len(driver.of("download")) == 2 * len(program._written)


def test_programs_share_what_is_on_the_device(training):
    program, driver, data, state = training
    program.run(data, state, 1)
    other = backend.CompiledProgram(program.program, program._memory)
    driver.log.clear()
    other.run(data, state, 1)
    assert driver.of("upload") == []


def test_large_data_is_looked_at_anew_by_every_fit_and_after_callbacks(driver):
    """One pixel of many is in no sample, and must be seen all the same."""
    model = keras.Sequential([keras.layers.Input((1000,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.zeros((3000, 1000), "float32"), np.zeros((3000, 1), "float32")

    def copied(**arguments):
        driver.log.clear()
        model.fit(x, y, batch_size=1000, verbose=0, **arguments)
        return driver.of("upload").count(x.nbytes)

    assert copied(epochs=3) == 1
    bound = [
        list(executable._bindings)
        for _, executable in model._step_cache._steps.values()
    ]
    x[1234, 567] = 1.0
    assert copied() == 1
    assert [
        list(executable._bindings)
        for _, executable in model._step_cache._steps.values()
    ] == bound
    change = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: x.__setitem__((5, 6), epoch + 2.0)
    )
    assert copied(epochs=3, callbacks=[change]) == 3
    assert copied(epochs=3, callbacks=[keras.callbacks.EarlyStopping("loss")]) == 1


def test_code_and_recordings_of_programs_that_are_gone_are_let_go(training):
    program, driver, data, state = training
    loaded = len(driver.modules)
    assert loaded
    other = backend.CompiledProgram(program.program, program._memory)
    other.run(data, state, 50)
    assert len(driver.modules) == 2 * loaded
    recorded = sum(len(binding.graphs) for binding in other._bindings.values())
    assert recorded
    del other
    program.run(data, {name: array.copy() for name, array in state.items()}, 1)
    assert len(driver.modules) == loaded
    assert len(driver.of("forget")) == recorded


def test_ctrl_c_waits_until_state_is_that_of_a_whole_step(training, monkeypatch):
    program, driver, data, state = training
    fetched = []

    def interrupted(array, address):
        fetched.append(address)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(driver, "download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        program.run(data, state, 5)
    assert len(fetched) == len(program._written)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_large_state_stays_on_the_device_until_somebody_wants_it(driver):
    dense = keras.layers.Dense(64)
    model = keras.Sequential([keras.layers.Input((48,)), dense])
    model.compile("adam", "mse")
    x, y = np.ones((100, 48), "float32"), np.ones((100, 64), "float32")
    model.fit(x, y, batch_size=10, verbose=0)
    large = dense.kernel.size * 4
    assert large not in driver.of("download")
    uploads = driver.of("upload").count(large)
    model.fit(x, y, batch_size=10, epochs=2, verbose=0)
    assert large not in driver.of("download")
    assert driver.of("upload").count(large) == uploads
    dense.kernel.numpy()
    assert driver.of("download").count(large) == 1
    dense.kernel.numpy()
    assert driver.of("download").count(large) == 1  # it is at home
    copy.deepcopy(dense.bias)
    dense.kernel.assign(np.ones((48, 64)))
    model.fit(x, y, batch_size=10, verbose=0)
    assert driver.of("upload").count(large) == uploads + 1
    model.predict(x, verbose=0)  # reads device-resident weights
    assert driver.of("download").count(large) == 1
    config.set_backend("numpy")  # all comes home: a kernel and two slots of Adam's
    model.fit(x, y, batch_size=10, verbose=0)
    assert driver.of("download").count(large) == 4


@pytest.mark.usefixtures("driver")
def test_nothing_is_kept_of_a_model_that_is_gone():
    model = keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(64)])
    model.compile("sgd", "mse")
    gc.collect()
    before = len(device_arrays.dirty)
    model.fit(np.ones((9, 32)), np.ones((9, 64)), verbose=0)
    assert len(device_arrays.dirty) == before + 2  # kernel and bias
    del model
    gc.collect()
    assert len(device_arrays.dirty) == before


def test_memory_of_arrays_that_are_gone_is_used_again():
    x = Input("x", (300,), "float32")
    program = pure(Graph.of("small", [x], {"y": pointwise.negative(x)}))
    driver = Recorder()
    executable = backend.CompiledProgram(program, Memory(driver))
    executable.run({"x": np.zeros(300, "float32")}, {}, 1)
    room = driver.room
    for number in range(5):
        executable.run({"x": np.full(300, number, "float32")}, {}, 1)
    assert driver.room == room


# ---- memory, cache, no GPU ---------------------------------------------------------


def test_no_room_on_the_device_is_told_with_sizes(training):
    program, driver, data, state = training
    before = {name: array.copy() for name, array in state.items()}
    driver.room = 1000
    with pytest.raises(
        MemoryError, match=r"'x': 0.2 MB are needed, .* free. Lower the"
    ):
        program.run(data, state, 5)
    driver.room = 1 << 19
    with pytest.raises(MemoryError, match=r"kernel': 1.6 MB .* Lower the model's size"):
        program.run(data, state, 5)
    driver.room = sum(-(-array.nbytes // 512) * 512 for array in state.values())
    with pytest.raises(MemoryError, match=r"within a step.* Lower `batch_size`"):
        program.run(data, state, 5)
    same((before, {}), (state, {}))
    driver.room = 1 << 30
    program.run(data, state, 5)
    assert driver.of("replay")


def test_machine_code_of_another_compiler_is_not_used():
    driver = Recorder()
    for version in ("NVRTC 12.9, c++17", "NVRTC 13.0, c++17", "NVRTC 13.0, c++20"):
        driver.compiled_by = version
        before = driver.compiled
        code.code_of(["void NAME() {}"], driver)
        code.code_of(["void NAME() {}"], driver)
        assert driver.compiled == before + 1


def test_machine_code_is_kept_and_damage_is_noticed(own_cache):
    program, _ = op_program(OPS["exp"], [np.ones((3, 4))], {})
    first, second, third = Recorder(), Recorder(), Recorder()
    backend.CompiledProgram(program, Memory(first))
    backend.CompiledProgram(program, Memory(second))
    assert first.compiled > 0
    assert second.compiled == 0
    for path in own_cache.glob("*.program"):
        path.write_bytes(path.read_bytes()[:-1])
    backend.CompiledProgram(program, Memory(third))
    assert third.compiled == first.compiled


def test_the_reason_why_there_is_no_gpu():
    reason = cuda_driver.unavailable_reason()
    if reason is None:
        pytest.skip("there is a GPU here")
    assert reason.strip()
    assert registry.available()["cuda"] == reason
    with pytest.raises(RuntimeError, match="'cuda' cannot run here"):
        registry.backend("cuda")


# ---- whole runs --------------------------------------------------------------------


@pytest.mark.skipif(cuda_host.reason() is not None, reason=str(cuda_host.reason()))
def test_results_of_every_step_and_state_from_chunk_to_chunk():
    x, total = Input("x", (5,), "float32"), Input("total", (5,), "float32")
    new = pointwise.add(x, total)
    graph = Graph.of(
        "sums", [x, total], {"total": new, "seen": pointwise.negative(new)}
    )
    program = registry.Program(graph, ("x",), ("total",), ("seen",))
    data = {"x": np.arange(5, dtype="float32")}
    state = {"total": np.ones(5, "float32")}
    expected = ran(reference.compile(program), data, state, 70)
    executable = compiled(program)
    same(ran(executable, data, state, 70), expected)
    executable._workspace.capacity = 33  # as if results took all memory
    same(ran(executable, data, state, 70), expected)


@pytest.mark.skipif(cuda_host.reason() is not None, reason=str(cuda_host.reason()))
def test_a_recipe_learns_as_in_the_reference():
    program, data, state = step_of("mnist-perceptron", rows=96, batch=32)
    data = {name: data[name] for name in program.data}
    expected, _ = ran(reference.compile(program), data, state, 3)
    trained, _ = ran(compiled(program, None, "float32"), data, state, 3)
    for name, array in expected.items():
        np.testing.assert_allclose(trained[name], array, 1e-4, 1e-4, err_msg=name)


# ---- what finalizers and threads must not break --------------------------------------


def test_a_finalizer_in_the_middle_of_a_change_of_tables_changes_none(driver):
    """Memory that is being given back is walked through while an array dies."""
    memory = backend.memory()
    arrays = [np.zeros(n, "float32") for n in (300, 3000, 30_000)]
    for number, array in enumerate(arrays):
        memory.mirror(array, f"array {number}", is_data=False)
    del array
    memory.release(memory.allocate(7000, "something"), 7000)
    free = driver.free

    def free_and_collect(address):
        arrays.clear()  # here the garbage collector finds them
        gc.collect()
        free(address)

    driver.free = free_and_collect
    memory.free()
    assert not arrays
    assert not memory._mirrors
    driver.free = free
    before = len(driver.of("free"))
    memory.free()  # what died in the middle is given back the next time
    assert len(driver.of("free")) == before + 3


@pytest.mark.usefixtures("driver")
def test_pinned_memory_does_not_grow_with_the_models_that_were(driver, monkeypatch):
    monkeypatch.setattr(cuda_memory, "SPARE_PINNED", 40_000)
    memory = backend.memory()
    for width in range(100, 140):  # no two of the same size
        array = np.zeros((width, width), "float32")
        memory.refresh(array, memory.mirror(array, "weights", False), False)
        del array
        memory.collect()
    assert 0 < driver.pinned <= 40_000
    memory.free()
    assert driver.pinned == 0


def test_threads_that_want_what_is_lent_fetch_it_once():
    lock, fetched = threading.RLock(), []
    array = np.zeros(3)

    def fetch(array):
        fetched.append(threading.get_ident())
        time.sleep(0.05)
        array[...] = 7

    device_arrays.mark_dirty_on_device(array, fetch, lock)
    seen = []
    threads = [
        threading.Thread(
            target=lambda: seen.append(device_arrays.sync_to_host(array).copy())
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert [list(array) for array in seen] == [[7, 7, 7]] * 4
