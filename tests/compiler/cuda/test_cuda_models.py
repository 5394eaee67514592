"""Many models in one program, and small steps that one block takes again and again."""

import cuda_host
import numpy as np
import pytest
from cuda_checks import emulated, precision

import ganglion as keras
from ganglion import config, layers
from ganglion.compiler import reference
from ganglion.compiler.cuda import (
    backend,
    code,
    emit,
    for_models,
    pipeline,
    prelude,
    reduce,
    tiling,
)
from ganglion.compiler.cuda.direct_weights import direct_weights
from ganglion.compiler.cuda.fusion import BlockRows, FusedKernel, GatheredContract
from ganglion.compiler.cuda.launches import Priority, fused_kernels_of, partitions_of
from ganglion.compiler.cuda.model_states import ModelRows
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.plan.epilogues import is_copy
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Indirect,
    Load,
    Loop,
    View,
)
from ganglion.training.data_adapters import Table

emulation = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)
RNG = np.random.default_rng(3)
X = RNG.normal(size=(70, 12)).astype("float32")
BYTES = RNG.integers(0, 256, (70, 96)).astype("uint8")
Y = RNG.integers(0, 3, 70)
BATCH = 16
F32 = np.dtype("float32")


def regression(seed):
    hidden = [layers.Dense(20, activation="relu"), layers.Dropout(0.2, seed=seed)]
    model = keras.Sequential([keras.Input((12,)), *hidden, layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01 * (seed + 1)), "mse")
    return model


def deep_regression(seed):
    hidden = [layers.Dense(units, "relu") for units in (64, 32)]
    model = keras.Sequential([keras.Input((12,)), *hidden, layers.Dense(1)])
    model.compile(keras.optimizers.Adam(0.01 * (seed + 1)), "mse")
    return model


def images(seed):
    model = keras.Sequential(
        [
            keras.Input((12,)),
            layers.Reshape((3, 4, 1)),
            layers.Conv2D(5, 2, activation="relu", padding="same"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(3, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.SGD(0.05 * (seed + 1), momentum=0.9, nesterov=True)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def classifier(seed):
    hidden = [layers.Dense(1100, "relu"), layers.Dense(40, "relu")]
    model = keras.Sequential([keras.Input((12,)), *hidden, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01 * (seed + 1)), loss, metrics=["accuracy"])
    return model


def bytes_classifier(seed):
    first = [keras.Input((96,), dtype="uint8"), layers.Rescaling(1 / 255)]
    hidden = [layers.Dense(70, "relu"), layers.Dense(40, "relu")]
    model = keras.Sequential([*first, *hidden, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1 * (seed + 1)), loss)
    return model


def wide_classifier(seed):
    hidden = [layers.Dense(units, "relu") for units in (120, 40)]
    model = keras.Sequential([keras.Input((96,)), *hidden, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1 * (seed + 1)), loss)
    return model


def filled_tiles(seed):
    hidden = [layers.Dense(1100, "relu"), layers.Dense(64, "relu")]
    model = keras.Sequential([keras.Input((12,)), *hidden, layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1 * (seed + 1)), loss)
    return model


BATCHES = {filled_tiles: 64, wide_classifier: 64, deep_regression: 4}
WIDE = RNG.normal(size=(280, 96)).astype("float32")
DATA = {bytes_classifier: BYTES, wide_classifier: WIDE}


def steps_of(build, count):
    """Return the data of steps, and the traced step of each model."""
    config.set_backend("numpy")
    steps = []
    for seed in range(count):
        keras.utils.set_random_seed(seed)
        x = DATA.get(build, X)
        is_regression = build in (regression, deep_regression)
        labels = np.resize(Y, len(x))
        table = Table(x, labels.astype("float32") if is_regression else labels)
        batch = BATCHES.get(build, BATCH)
        signature = table.signature(batch, len(x), True)
        steps.append(build(seed)._step_cache.traced("train", table, signature))
    arrays = table.arrays()
    return {name: arrays[name] for name in steps[0].program.data}, steps


def states_of(steps):
    """Return copies of the variables of each step, named as the first one's."""
    names = list(steps[0].variables)
    return [
        dict(zip(names, (v.array.copy() for v in step.variables.values()), strict=True))
        for step in steps
    ]


@emulation
@pytest.mark.parametrize("build", [regression, deep_regression, images])
@pytest.mark.parametrize("launched", [False, True])
def test_models_together_have_the_bits_of_each_alone(build, launched, request):
    if launched:
        request.getfixturevalue("launches")
    check_bits(build, launched, "tf32")


@emulation
@pytest.mark.parametrize("precise", ["tf32", "bf16", "float32"])
@pytest.mark.parametrize(
    "build", [classifier, bytes_classifier, wide_classifier, images, filled_tiles]
)
def test_tiles_for_many_models_have_the_bits_of_one_alone(
    build, precise, launches, monkeypatch
):
    emissions = []

    def for_many(program, spec, models):
        emission = emit.emit_program(program, spec, 4096 if models > 1 else 1)
        emissions.append(emission)
        return emission

    monkeypatch.setattr(code, "emit_program", for_many)
    check_bits(build, True, precise)
    together, alone = ("".join(e.functions.values()) for e in emissions)
    exact = precise == "float32"
    assert ("contract_in_order<" in together) is not exact
    assert "contract_in_order<" not in alone
    assert "of_like_blocks" in together
    assert "of_like_blocks" not in alone
    if build in DATA and precise == "tf32":  # rows, for both products of the data
        assert "int GATHERED = 1;" in together
        assert "int GATHERED = 2;" in together
    if build is wide_classifier:
        assert ("int SUMS_STAY = 1;" in together) is (precise == "tf32")
    if build is classifier and precise == "tf32":
        assert "int CUTS = 4;" in together
        assert "int AT_ONCE = 4;" in together
        of_many, of_one = (copies_read(emission) for emission in emissions)
        assert of_one
        assert not of_many


@emulation
@pytest.mark.parametrize("build", [wide_classifier, filled_tiles])
@pytest.mark.parametrize("precise", ["tf32", "bf16"])
def test_blocks_that_keep_an_operand_have_the_bits_of_one_model(
    build, precise, launches, monkeypatch
):
    texts = []

    def for_many(program, spec, models):
        emission = emit.emit_program(program, spec, 4096 if models > 1 else 1)
        texts.append("".join(emission.functions.values()))
        return emission

    monkeypatch.setattr(code, "emit_program", for_many)
    monkeypatch.setattr(tiling, "_cost_keeping_right", lambda *_: 0)
    check_bits(build, True, precise)
    assert "contract_keeping_right<" in texts[0]
    assert "contract_keeping_right<" not in texts[1]


@emulation
def test_a_block_alone_on_a_processor_has_the_bits_of_one_model(launches, monkeypatch):
    monkeypatch.setattr(tiling, "TILES_OF_MODELS", ())
    monkeypatch.setattr(
        tiling, "TILES_OF_PROCESSORS", (tiling.Tile(128, 128, 2, 4, depth=64),)
    )
    check_bits(wide_classifier, True, "tf32")


def copies_read(emission):
    """Return the rounded copies of weights that launches of a step touch."""
    touched = {buffer.name for call in emission.every for buffer in call.buffers}
    return {name for name in touched if name.endswith(" rounded")}


def test_weights_are_read_themselves_only_where_products_alone_read_copies():
    def schedule_of(model):
        model.compile(keras.optimizers.SGD(0.1), "mse")
        table = Table(X, Y.astype("float32"))
        signature = table.signature(BATCH, len(X), True)
        step = model._step_cache.traced("train", table, signature)
        return pipeline.build(step.program, GpuSpec())

    config.set_backend("numpy")
    dense = [layers.Dense(1100, "relu"), layers.Dense(40, "relu"), layers.Dense(1)]
    schedule = schedule_of(keras.Sequential([keras.Input((12,)), *dense]))
    direct = direct_weights(schedule)
    assert {weights.name for weights in direct.values()} >= {dense[1].kernel.path}
    # A copy that is read once its weights have changed, or beside that, stays.
    (name, weights), *_ = direct.items()
    writers = [launch for launch in schedule.every if weights.key in launch.writes()]
    readers = [
        partition
        for partition in partitions_of(schedule.every)
        if any(("arena", name) in fused.reads() for fused in partition.fused_kernels)
    ]
    writers[0].partitions += readers[:1]
    assert name not in direct_weights(schedule)


def schedules_of(build):
    """Return the launches of a step for one model, and those for many."""
    _, steps = steps_of(build, 1)
    schedule = pipeline.build(steps[0].program, GpuSpec())
    return schedule, for_models.schedule_of_models(schedule, "tf32")


def test_rows_of_the_data_are_copied_for_one_model_only(launches):
    alone, together = schedules_of(wide_classifier)
    copies = [
        {k.target.buffer.name for k in s.step.prefetched if gathers_rows(k)}
        for s in (alone, together)
    ]
    (copy,) = copies[0]
    assert not copies[1]
    assert copy not in {
        buffer.name
        for _, fused in fused_kernels_of(together.every)
        for buffer in fused.buffers()
    }
    # The index is made for the next step, while this one reads its own.
    products = [k for k in together.step.every if isinstance(k, GatheredContract)]
    assert {k.index.name for k in products} <= together.double_buffered
    assert all(k.alone.left.buffer.name == copy for k in products)


def gathers_rows(kernel):
    return (
        isinstance(kernel, Loop)
        and isinstance(kernel.expr, Indirect)
        and len(kernel.shape) == 2
    )


def test_rows_are_still_copied_where_something_else_reads_them(launches, monkeypatch):
    _, together = schedules_of(classifier)  # a loop, as rows have 12 elements
    assert any(map(gathers_rows, together.step.prefetched))
    monkeypatch.setattr(for_models, "_are_shuffled", lambda *_: False)
    _, together = schedules_of(wide_classifier)  # rows that may not exist
    assert any(map(gathers_rows, together.step.prefetched))


def relu_schedules():
    """Return a step whose ReLUs alone read their inputs, and one where others do."""
    config.set_backend("numpy")
    table, schedules = Table(WIDE, np.resize(Y, len(WIDE))), []
    for others in (False, True):
        inputs = keras.Input((96,))
        before = layers.Dense(120)(inputs)
        hidden = layers.Activation("relu")(before)
        if others:
            hidden = layers.Add()([hidden, layers.Activation("tanh")(before)])
        model = keras.Model(inputs, layers.Dense(40)(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
        signature = table.signature(64, len(WIDE), True)
        step = model._step_cache.traced("train", table, signature)
        schedules.append(pipeline.build(step.program, GpuSpec()))
    return schedules


def test_the_input_of_a_relu_is_stored_only_for_others(launches):
    def first_product(schedule):
        every = [fused for _, fused in fused_kernels_of(schedule.every)]
        return next(fused for fused in every if isinstance(fused.kernel, Contract))

    alone, shared = map(first_product, relu_schedules())
    assert alone.kernel.out.buffer.key in alone.unstored
    assert shared.kernel.out.buffer.key not in shared.unstored


def places_of(schedule, wanted):
    """Return the launches of a step that have such partitions, and their products."""
    return [
        (number, launch.products)
        for number, launch in enumerate(schedule.every)
        if any(map(wanted, launch.partitions))
    ]


def test_blocks_beside_products_of_many_models_are_few(launches):
    def prefetches(partition):
        return partition.small and partition.priority is Priority.PREFETCH

    def transposes(partition):
        (kernel,) = partition.kernels if len(partition.kernels) == 1 else [None]
        return isinstance(kernel, Loop) and len(kernel.shape) == 2 and is_copy(kernel)

    alone, together = schedules_of(classifier)
    assert len(places_of(alone, prefetches)) > 1
    ((small, _),) = places_of(together, prefetches)
    assert any(
        partition.small and partition.priority is Priority.DEFERRED
        for partition in together.every[small].partitions
    )
    assert any(products for _, products in places_of(alone, transposes))
    assert not any(products for _, products in places_of(together, transposes))


def test_what_is_needed_where_it_was_stays(launches, monkeypatch):
    before = for_models._is_in_order
    monkeypatch.setattr(for_models, "_is_in_order", lambda _: False)
    _, together = schedules_of(classifier)
    monkeypatch.setattr(for_models, "_is_in_order", before)
    alone, moved = schedules_of(classifier)

    def small(schedule):
        return places_of(schedule, lambda p: p.small and p.priority.value == 2)

    assert small(together) == small(alone) != small(moved)


def test_a_thread_stands_for_several_that_share_a_result():
    """Of more rows than one model has, each thread adds up in the order of several."""
    sums = Loop.of(
        "sum",
        (128, 10, 128),
        Load(np.dtype("f4"), View(Buffer("x", (128, 128), F32, "arena"), (128, 0, 1))),
        View.of(Buffer("y", (128, 10), F32, "arena")),
        1,
        "sum",
    )
    fused = FusedKernel(sums)
    text = [
        reduce.emit_reduction(fused, GpuSpec(), BlockRows(count, (128,), 2)).text
        for count in (2, 16)
    ]
    tilings = [
        reduce._Reduction(fused, sums, GpuSpec(), BlockRows(count, (128,), 2)).tiling
        for count in (2, 16)
    ]
    assert [tiling.along for tiling in tilings] == [8, 8]
    assert [tiling.threads for tiling in tilings] == [8, 2]
    assert [tiling.width for tiling in tilings] == [1, 2]
    assert "g + 6" in text[1]
    assert "g + 6" not in text[0]


def check_bits(build, launched, precise):
    with precision(precise):
        data, steps = steps_of(build, 3)
        program, states = steps[0].program, states_of(steps)
        first = 10 if build is deep_regression else 3  # rows are drawn for 8 at a time
        together = backend.CompiledProgram(program, emulated(), models=3)
        assert together.emission.schedule.step.resident is not launched
        rows = ModelRows(list(states[0].values()), 3, emulated())
        for number, name in enumerate(states[0]):
            rows.array(number)[...] = [state[name] for state in states]
        rows.upload()
        known = rows.states({name: n for n, name in enumerate(states[0])})
        together.run_models(data, known, first)
        together.run_models(data, known, 1)
        rows.download()
        alone = backend.CompiledProgram(program, emulated())
        alone.poisons = True
        for which, state in enumerate(states):
            alone.run(data, state, first + 1)
            for number, (name, array) in enumerate(state.items()):
                assert rows.array(number)[which].tobytes() == array.tobytes(), name


@emulation
@pytest.mark.parametrize("build", [regression, deep_regression, images])
def test_a_resident_block_computes_what_the_reference_does(build):
    with precision("tf32"):
        data, steps = steps_of(build, 1)
        (state,) = states_of(steps)
        meant = {name: array.copy() for name, array in state.items()}
        program = backend.CompiledProgram(steps[0].program, emulated())
        assert program.emission.schedule.step.resident
        program.poisons = True
        steps_taken = 10 if build is deep_regression else 4
        program.run(data, state, steps_taken)
        reference.compile(steps[0].program).run(data, meant, steps_taken)
    for name, array in meant.items():
        np.testing.assert_allclose(state[name], array, 0.03, 0.03, err_msg=name)


@emulation
def test_threads_of_a_whole_warp_draw_offsets_for_each_other(monkeypatch):
    plain = prelude.device_text

    def of_whole_warps(name):  # 32 rows, which the emulation does not know of
        includes, text = plain(name)
        return includes, text.replace("= is_whole_warp()", "= true")

    monkeypatch.setattr(prelude, "device_text", of_whole_warps)
    test_a_resident_block_computes_what_the_reference_does(deep_regression)


@emulation
def test_small_rows_are_copied_apart():
    first = [np.zeros(3, "float32"), np.zeros((40, 40), "float32"), np.zeros((), "i4")]
    rows = ModelRows(first, 2, emulated())
    for number in range(3):
        rows.array(number)[...] = number + 1
    rows.upload()
    for number in range(3):
        rows.array(number)[...] = 0
    rows.download(small=True)
    assert [rows.array(number).max() for number in range(3)] == [1, 0, 3]
    rows.download()
    assert [rows.array(number).min() for number in range(3)] == [1, 2, 3]


def test_large_steps_and_other_precisions_are_launches(monkeypatch):
    _, steps = steps_of(regression, 1)
    program = steps[0].program

    def is_resident(**changes):
        return emit.emit_program(program, GpuSpec(**changes)).schedule.step.resident

    assert is_resident()
    assert not is_resident(precision="float32")
    assert not is_resident(precision="bf16")
    monkeypatch.setattr(TUNING, "resident_scratch", GpuSpec().shared_per_block)
    assert not is_resident()  # its arrays find no room


def resident_text(build):
    _, steps = steps_of(build, 1)
    emission = emit.emit_program(steps[0].program, GpuSpec())
    (call,) = emission.every
    assert call.resident
    return emission.functions[call.function]


def test_the_order_of_rows_is_drawn_for_several_steps():
    before, in_steps = resident_text(regression).split("; step < steps; ")
    assert "if ((step + 1) % 8 == 0)" in in_steps
    # What the first step begins with is there before it, by the same functions.
    gather = in_steps.split("_body1(")
    assert len(gather) == 2
    assert "(step + 1) % 8 * 16" in gather[1].splitlines()[0]
    assert "_body0(" not in in_steps  # from the next step on, it is another one
    assert "_body0(" in before.split("wait_for_staged();")[1]


def test_the_gradient_of_a_relu_compares_its_result():
    text = resident_text(deep_regression)
    assert text.count("0x0.0p+0f < ") == 4  # of two layers, two at a time
    stored = text.split("_body2(")[1].split("contract_resident")[0]
    assert stored.count("store_lanes(") == 2  # not what the ReLU is of
    assert "swizzled<64>(" in stored


def test_numbers_that_are_made_early_are_not_made_again():
    assert resident_text(regression).count("powf(") == 2


@pytest.mark.parametrize("width", [32, 64, 96])
def test_swizzled_rows_have_no_conflicts(width):
    """Banks of what threads of a warp read at once, by the rule of common.cuh."""

    def bank(row, column):
        place = row // 4 % 4 * 8 ^ row // 2 % 2 * 16
        return ((row * width + column) ^ place) % 32

    rows = [
        [bank(2 * g, 4 * t + i) for g in (0, 1) for t in range(4)] for i in range(4)
    ]
    columns = [
        [bank(4 * t, 2 * g + i) for g in range(4) for t in range(4)] for i in (0, 1)
    ]
    for accesses in (rows, columns):
        together = [b for access in accesses for b in access]
        assert sorted(together) == list(range(32))
