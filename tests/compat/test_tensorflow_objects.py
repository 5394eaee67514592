"""Objects of the thin `tensorflow`: checkpoints, strategies, lists, texts, seeds."""

from __future__ import annotations

import wave

import numpy as np
import pytest

import ganglion as keras
from ganglion.compat.tensorflow import namespaces
from ganglion.compat.tensorflow.data.dataset import Dataset

tf = namespaces.load("")


def test_moving_averages_follow_variables():
    variable, steps = tf.Variable([1.0, 2.0]), tf.Variable(0.0)
    averages = tf.train.ExponentialMovingAverage(0.9)
    slow = tf.train.ExponentialMovingAverage(0.9, num_updates=steps)

    @tf.function
    def step():
        variable.assign_add([1.0, 0.0])
        averages.apply([variable])
        slow.apply([variable])

    averages.apply([variable])
    slow.apply([variable])
    step()
    np.testing.assert_allclose(averages.average(variable), [1.1, 2.0], rtol=1e-6)
    np.testing.assert_allclose(slow.average(variable), [1.9, 2.0], rtol=1e-6)
    assert averages.average(steps) is None


# ---- checkpoints ---------------------------------------------------------------------


def trained():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    optimizer = keras.optimizers.Adam(0.1)
    with keras.GradientTape() as tape:
        loss = keras.ops.sum(model(np.ones((2, 3), "float32")) ** 2)
    weights = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
    return model, optimizer


def test_a_checkpoint_restores_what_was_saved(tmp_path):
    model, optimizer = trained()
    step = tf.Variable(5)
    saved = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    path = saved.save(tmp_path / "ckpt")
    other, fresh, count = trained()[0], keras.optimizers.Adam(0.1), tf.Variable(0)
    loaded = tf.train.Checkpoint(model=other, optimizer=fresh, step=count)
    loaded.restore(tf.train.latest_checkpoint(tmp_path)).assert_consumed()
    assert path == str(tmp_path / "ckpt-1")
    assert int(count.numpy()) == 5
    for mine, theirs in zip(other.weights, model.weights, strict=True):
        assert np.array_equal(mine.numpy(), theirs.numpy())
    # An optimizer takes its slots when it is built.
    fresh.build(other.trainable_variables)
    assert int(fresh.iterations.numpy()) == 1
    for mine, theirs in zip(fresh.variables, optimizer.variables, strict=True):
        assert np.array_equal(mine.numpy(), theirs.numpy())


def test_a_part_of_a_checkpoint_matches_existing_objects(tmp_path):
    saved = tf.train.Checkpoint(step=tf.Variable(5), loss=tf.Variable(1.0))
    path = saved.save(tmp_path / "ckpt")
    status = tf.train.Checkpoint(step=tf.Variable(0)).restore(path)
    assert status.assert_existing_objects_matched() is status
    with pytest.raises(AssertionError, match="objects: loss"):
        status.assert_consumed()
    status = tf.train.Checkpoint(other=tf.Variable(0)).restore(path)
    with pytest.raises(AssertionError, match="objects: other"):
        status.assert_existing_objects_matched()


def test_a_manager_keeps_the_newest(tmp_path):
    step = tf.Variable(0)
    saved = tf.train.Checkpoint(step=step)
    manager = tf.train.CheckpointManager(saved, tmp_path, max_to_keep=2)
    assert manager.latest_checkpoint is None
    assert saved.restore(None) is not None
    for number in range(3):
        step.assign(number)
        manager.save()
    names = [path.rpartition("/")[2] for path in manager.checkpoints]
    assert names == ["ckpt-2", "ckpt-3"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", *names]
    saved.restore(manager.checkpoints[0])
    assert int(step.numpy()) == 1


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path):
    path = tf.train.Checkpoint(net=trained()[0]).write(tmp_path / "one")
    unbuilt = keras.Sequential([keras.layers.Dense(2)])
    with pytest.raises(
        ValueError, match=r"`net` was saved with 2.*Call the model once"
    ):
        tf.train.Checkpoint(net=unbuilt).read(path)
    with pytest.raises(TypeError, match="int has no variables"):
        tf.train.Checkpoint(step=3).write(tmp_path / "two")
    (tmp_path / "bad").write_bytes(b"no file of ours")
    with pytest.raises(ValueError, match="bad cannot be loaded"):
        tf.train.Checkpoint(net=trained()[0]).read(tmp_path / "bad")


def test_weights_saved_in_the_manner_of_tensorflow_are_found(tmp_path):
    model = trained()[0]
    assert tf.train.latest_checkpoint(tmp_path / "none") is None
    for number in range(2):
        model.save_weights(tmp_path / "runs" / f"cp-{number:04d}.ckpt")
    latest = tf.train.latest_checkpoint(str(tmp_path / "runs"))
    assert latest.endswith("runs/cp-0001.ckpt")
    model.load_weights(latest)


# ---- strategies, lists, hints --------------------------------------------------------


def test_a_strategy_on_one_device():
    strategy = tf.distribute.MirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert strategy.num_replicas_in_sync == 1
    results = strategy.run(lambda x: model(x), args=(np.ones((4, 2), "float32"),))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, results, axis=0)
    np.testing.assert_allclose(total, np.sum(results, 0), rtol=1e-6)
    assert strategy.reduce("SUM", 3.0, axis=None) == 3.0
    with pytest.raises(NotImplementedError, match="one device"):
        tf.distribute.MirroredStrategy(devices=["gpu:0", "gpu:1"])
    with pytest.raises(ValueError, match="TPU"):
        tf.distribute.cluster_resolver.TPUClusterResolver()


def test_lists_of_tensors():
    rows = tf.TensorArray(tf.float32, size=0, dynamic_size=True)
    for number in tf.range(3):
        rows = rows.write(number, [number, 1.0])
    assert rows.stack().numpy().tolist() == [[0, 1], [1, 1], [2, 1]]
    assert rows.gather([2, 0]).numpy().tolist() == [[2, 1], [0, 1]]
    with pytest.raises(ValueError, match="dynamic_size"):
        tf.TensorArray(tf.float32, size=1).write(1, 0.0)
    assert rows.read(1).numpy().tolist() == [1, 1]
    assert rows.stack().numpy().tolist() == [[0, 1], [0, 0], [2, 1]]
    with pytest.raises(ValueError, match="clear_after_read=False"):
        rows.read(1)
    kept = tf.TensorArray(tf.float32, size=1, clear_after_read=False).write(0, 3.0)
    assert float(kept.read(0)) == float(kept.read(0)) == 3


def test_a_function_with_lists_is_compiled():
    @tf.function
    def powers(x, count):
        parts = tf.TensorArray(tf.float32, size=count)
        for number in tf.range(count):
            parts = parts.write(number, x ** tf.cast(number, tf.float32))
        return parts.stack()

    assert powers(tf.constant(2.0), 4).numpy().tolist() == [1, 2, 4, 8]


def test_a_function_of_single_numbers_gives_single_numbers():
    double = keras.function(lambda x: x * 2)
    for backend in ("numpy", "cpu"):
        keras.config.set_backend(backend)
        try:
            assert double(keras.ops.convert_to_tensor(3.0)).shape == ()
        finally:
            keras.config.set_backend("auto")


def test_a_function_that_needs_numbers_runs_as_python():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], invert=True)

    @tf.function
    def name_of(scores):
        return lookup(tf.argmax(scores, axis=-1) + 1)

    assert name_of(tf.constant([[0.1, 0.9], [1.0, 0.0]])).numpy().tolist() == [
        b"b",
        b"a",
    ]


def test_a_function_on_texts_is_not_compiled_for_each_of_them():
    @tf.function
    def number(text):
        return tf.strings.to_number(text) * 2

    values = [float(number(tf.constant(str(n)))) for n in range(12)]
    assert values == [2.0 * n for n in range(12)]
    assert number.tracing_count == 0


def test_sizes_that_are_computed_bound_slices():
    class Shorter(keras.layers.Layer):
        def call(self, x):
            return x[:, : tf.shape(x)[1] - 1]

    inputs = keras.Input((None, 2))
    model = keras.Model(inputs, Shorter()(inputs))
    assert model.predict(np.ones((2, 5, 2)), verbose=0).shape == (2, 4, 2)


def test_rows_that_only_a_batch_fills_are_reshaped():
    class Routed(keras.layers.Layer):
        def call(self, x):
            flat = tf.reshape(x, (12, 2))  # of batches of four
            return tf.reshape(flat * 2, (tf.shape(x)[0], tf.shape(x)[1], 2))

    inputs = keras.Input((3, 2))
    model = keras.Model(inputs, Routed()(inputs))
    assert model.predict(np.ones((8, 3, 2)), batch_size=4, verbose=0).sum() == 96


def test_sizes_that_are_known_stay_known_when_computed_with():
    class Nodes(keras.layers.Layer):
        def call(self, x):
            sizes = tf.shape(tf.transpose(x, [2, 0, 1, 3]))
            return tf.reshape(x, (sizes[0] * sizes[1], sizes[2] * 1, sizes[3]))

    inputs = keras.Input((6, 5, 2))
    outputs = keras.layers.Dense(1)(Nodes()(inputs))
    assert outputs.shape == (None, 6, 1)
    model = keras.Model(inputs, outputs)
    assert model(np.ones((3, 6, 5, 2))).shape == (15, 6, 1)


def test_a_session_is_only_configured():
    options = tf.compat.v1.ConfigProto()
    options.gpu_options.allow_growth = True
    session = tf.compat.v1.Session(config=options)
    with pytest.raises(NotImplementedError, match=r"Session.run: TensorFlow 1"):
        session.run([tf.constant(1.0)])


def test_a_single_number_of_a_variable_is_one_of_numpy():
    assert type(tf.Variable(3.0).numpy()) is np.float32
    assert type(keras.Variable(3.0).numpy()) is np.float32


def test_parts_of_variables_are_assigned():
    table = tf.Variable(tf.zeros([2, 2]))
    table[0, 1].assign(5.0)
    table[1].assign_add([1.0, 2.0])
    table.scatter_nd_update([[1, 1]], [7.0])
    assert table.numpy().tolist() == [[0, 5], [1, 7]]
    assert tf.Variable([1, 2]).dtype == tf.int32
    assert tf.Variable(1.5).dtype.name == "float32"


# ---- texts ---------------------------------------------------------------------------


def test_texts_are_tensors():
    words = tf.constant(["a", "bb"])
    assert words.dtype == tf.string
    assert tf.constant([1]).dtype != tf.string
    assert words.numpy().tolist() == [b"a", b"bb"]
    assert words[1].numpy() == b"bb"
    assert [word.numpy().decode() for word in words] == ["a", "bb"]
    assert (words == "a").numpy().tolist() == [True, False]
    assert (words + "!").numpy().tolist() == [b"a!", b"bb!"]
    assert tf.zeros([2], tf.string).numpy().tolist() == [b"", b""]


def test_a_layer_gives_texts_as_tensors():
    lookup = keras.layers.StringLookup(vocabulary=["x", "y"], invert=True)
    words = lookup([1, 2])
    assert words.tolist() == ["x", "y"]
    assert words.numpy().tolist() == [b"x", b"y"]
    assert [word.upper() for word in words] == ["X", "Y"]  # Python's texts still
    assert words[0].numpy().decode() == "x"
    joined = tf.strings.reduce_join(words)
    assert joined.numpy().decode() == "xy"


def test_large_whole_numbers_of_a_table_are_exact():
    (column,) = tf.io.decode_csv(["9007199254740993"], [np.zeros(1, np.int64)])
    assert column.tolist() == [2**53 + 1]


def test_a_table_of_words():
    words = tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2], value_dtype="int64")
    table = tf.lookup.StaticHashTable(words, default_value=-1)
    assert table.lookup(tf.constant([["b"], ["z"]])).numpy().tolist() == [[2], [-1]]


# ---- random numbers ------------------------------------------------------------------


def test_a_table_of_a_file_has_its_lines(tmp_path):
    path = tmp_path / "words.txt"
    path.write_bytes("a\u2028b\nc\r\nd\n".encode())
    index = tf.lookup.TextFileIndex
    words = tf.lookup.TextFileInitializer(
        str(path), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER
    )
    table = tf.lookup.StaticHashTable(words, -1)
    assert table.lookup(["a\u2028b", "c", "d"]).tolist() == [0, 1, 2]


def test_a_sound_of_one_channel_in_two(tmp_path):
    path = tmp_path / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([8192, 16384], "<i2").tobytes())
    sound, rate = tf.audio.decode_wav(tf.io.read_file(path), desired_channels=2)
    assert sound.tolist() == [[0.25, 0.25], [0.5, 0.5]]
    assert int(rate) == 8000


def test_candidates_follow_their_seed():
    def drawn(seed):
        tf.random.set_seed(3)
        sampler = tf.random.log_uniform_candidate_sampler
        both = [sampler([[1]], 1, 8, True, 100, seed=seed)[0] for _ in range(2)]
        return np.array(both).tolist()

    first, second = drawn(42)
    assert first != second
    assert drawn(42) == [first, second]
    assert drawn(43)[0] != first


def test_a_seed_of_tensorflow_is_the_start_of_a_sequence():
    tf.random.set_seed(1)
    first, second = (tf.random.normal([4], seed=3).numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    tf.random.set_seed(1)
    assert np.array_equal(first, tf.random.normal([4], seed=3))


def test_a_seed_flips_some_images_and_not_all():
    images = np.arange(64, dtype="float32").reshape(32, 1, 2, 1)
    data = Dataset.from_tensor_slices(images)
    flipped = data.map(lambda x: tf.image.random_flip_left_right(x, seed=5))
    assert {bool(x[0, 0, 0] < x[0, 1, 0]) for x in flipped} == {True, False}


def test_generators_have_states_of_their_own():
    draws = tf.random.Generator.from_seed(7)
    seed = draws.make_seeds(2)[0]
    assert seed.shape == (2,)
    image = np.arange(27, dtype="float32").reshape(3, 3, 3)
    crops = [tf.image.stateless_random_crop(image, [2, 2, 3], seed) for _ in range(2)]
    assert np.array_equal(*crops)
    assert not np.array_equal(draws.normal([3]), draws.normal([3]))


# ---- tf.summary ----------------------------------------------------------------------


def test_summaries_go_to_the_file_of_their_writer(tmp_path):
    assert not tf.summary.scalar("loss", 1.0, step=0)
    writer = tf.summary.create_file_writer(str(tmp_path / "logs"))
    with writer.as_default(step=3):
        assert tf.summary.scalar("loss", tf.constant(0.5))
        tf.summary.histogram("weights", np.arange(4.0))
        tf.summary.image("picture", np.zeros((1, 4, 4, 3), "float32"), step=1)
        tf.summary.text("remark", ["all is well"])
        tf.summary.audio("noise", np.zeros((1, 20, 1), "float32"), 8000)
    (events,) = (tmp_path / "logs").iterdir()
    content = events.read_bytes()
    assert all(tag in content for tag in (b"loss", b"weights", b"picture"))
    assert all(part in content for part in (b"all is well", b"noise", b"WAVE"))


def test_a_sparse_tensor_is_made_dense():
    sparse = tf.SparseTensor([[0, 1], [2, 0]], [-np.inf, 2.0], [3, 2])
    dense = [[0, -np.inf], [0, 0], [2, 0]]
    np.testing.assert_array_equal(tf.sparse.to_dense(sparse), dense)
    filled = tf.sparse.to_dense(sparse, default_value=5.0)
    np.testing.assert_array_equal(filled, [[5, -np.inf], [5, 5], [2, 5]])
    letters = tf.strings.unicode_split(["ab", "cd"], "UTF-8").to_tensor()
    assert letters.numpy().tolist() == [[b"a", b"b"], [b"c", b"d"]]


def test_arrays_that_grow_in_a_while_loop_are_refused_by_name():
    array = tf.TensorArray("float32", size=0, dynamic_size=True)
    with pytest.raises(NotImplementedError, match=r"tf.while_loop.*tf.scan"):
        tf.while_loop(lambda n, _: n < 3, lambda n, a: (n + 1, a), [0, array])
