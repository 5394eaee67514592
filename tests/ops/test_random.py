"""Random numbers: Philox's known answers, distributions, shuffles, seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ganglion import random
from ganglion.compiler.ir import random as r
from ganglion.compiler.ir.graph import Input, Value, evaluate
from ganglion.random import SeedGenerator, shuffled
from ganglion.variables import Scope

# counter, key, expected words: philox 4x32-10 of Random123's kat_vectors.
KNOWN_ANSWERS = {
    "zero": ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    "ones": (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
}


def draw(seed: int, counter: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    state = np.array([seed, counter], "uint32")
    return r.random_uniform.meaning(state, shape=shape, dtype=dtype)


@pytest.mark.parametrize("name", KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(name: str) -> None:
    counter, key, expected = KNOWN_ANSWERS[name]
    words = r.philox(tuple(np.array([word], np.uint64) for word in counter), key)
    assert " ".join(f"{int(word[0]):08x}" for word in words) == expected


def test_uniform_numbers_lie_in_zero_to_one_and_fill_it() -> None:
    numbers = draw(1, 2, 100_000)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert numbers.max() > 0.9999
    # n = 1e5: the mean's deviation is 0.0009, the variance's 0.00024.
    assert numbers.mean() == pytest.approx(0.5, abs=0.004)
    assert numbers.var() == pytest.approx(1 / 12, abs=0.001)
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert chi_square(counts) < 149  # the 99.9 % point for 99 degrees


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2 / expected).sum())


def test_the_largest_draw_is_below_one_in_float32() -> None:
    largest = ((np.uint64(2**32 - 1) >> np.uint64(8)) * 2.0**-24).astype("float32")
    assert largest < 1


def test_float64_draws_are_the_float32_ones() -> None:
    wide = draw(3, 4, 5, 7, dtype="float64")
    assert wide.dtype == np.float64
    assert np.array_equal(wide, draw(3, 4, 5, 7))


def test_a_shorter_draw_is_the_start_of_a_longer_one() -> None:
    long = draw(3, 4, 1000)
    for size in (1, 2, 3, 4, 5, 999):
        assert np.array_equal(draw(3, 4, size), long[:size])
    assert draw(3, 4, 0).shape == (0,)


def test_counters_and_seeds_are_independent() -> None:
    columns = [draw(seed, n, 20_000) for seed in (0, 1) for n in (0, 1, 2)]
    table = np.corrcoef(columns)
    off = table[~np.eye(len(columns), dtype=bool)]
    # The deviation of a correlation of 20,000 pairs is 0.007.
    assert np.abs(off).max() < 0.03
    neighbours = np.corrcoef(columns[0][:-1], columns[0][1:])[0, 1]
    assert abs(neighbours) < 0.03


# ---- shuffle -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 7, 8, 31, 97, 256, 1009, 60_000])
def test_a_shuffle_is_a_permutation(rows: int) -> None:
    for seed, epoch in ((0, 0), (1, 0), (0, 1), (2**32 - 1, 5)):
        order = shuffled(seed, epoch, rows)
        assert order.dtype == np.int32
        assert np.array_equal(np.sort(order), np.arange(rows))


def test_a_shuffle_differs_by_epoch_and_seed_and_repeats() -> None:
    orders = [tuple(shuffled(seed, epoch, 50)) for seed in (0, 1) for epoch in range(9)]
    assert len(set(orders)) == len(orders)
    assert np.array_equal(shuffled(7, 3, 1000), shuffled(7, 3, 1000))


def test_positions_can_be_asked_in_any_order() -> None:
    state = np.array([9, 2], "uint32")
    order = shuffled(9, 2, 1009)
    asked = np.random.default_rng(0).permutation(1009).astype("int32").reshape(-1, 1)
    actual = r.shuffle.meaning(state, asked, rows=1009)
    assert np.array_equal(actual, order[asked])


def test_a_shuffle_is_not_biased() -> None:
    """Every row is as likely at every place (seeds are fixed, so this is too)."""
    rows, epochs = 7, 1000
    counts = np.zeros((rows, rows))
    for epoch in range(epochs):
        counts[np.arange(rows), shuffled(5, epoch, rows)] += 1
    # Rows and columns sum to `epochs`: 36 degrees of freedom, 99.9 % point 67.98.
    assert chi_square(counts) < 68


def test_all_orders_of_four_rows_are_as_likely() -> None:
    actual: dict[tuple[int, ...], int] = {}
    for epoch in range(1500):
        order = tuple(int(item) for item in shuffled(11, epoch, 4))
        actual[order] = actual.get(order, 0) + 1
    assert len(actual) == math.factorial(4)
    assert chi_square(np.array(list(actual.values()))) < 49.7  # 23 degrees, 99.9 %


def test_neighbours_do_not_stay_together() -> None:
    order = shuffled(3, 0, 60_000).astype(int)
    together = np.mean(np.abs(np.diff(order)) == 1)
    assert together < 3e-4  # 2 / rows = 3e-5 is expected
    assert abs(np.corrcoef(order, np.arange(60_000))[0, 1]) < 0.02


# ---- the functions -------------------------------------------------------------------


def test_uniform_scales_to_its_range() -> None:
    numbers = random.uniform((2000,), -3.0, 5.0, seed=4)
    assert numbers.dtype == np.float32
    assert -3 <= numbers.min() < -2.9
    assert 4.9 < numbers.max() <= 5
    assert np.array_equal(numbers, random.uniform((2000,), -3.0, 5.0, seed=4))
    assert not np.array_equal(numbers, random.uniform((2000,), -3.0, 5.0, seed=5))
    assert random.uniform((3,), dtype="float64", seed=1).dtype == np.float64


def test_normal_has_its_mean_and_deviation() -> None:
    numbers = random.normal((200, 500), mean=2.0, stddev=3.0, seed=8)
    assert numbers.dtype == np.float32
    assert np.isfinite(numbers).all()
    # n = 1e5: deviations of 0.0095 and 0.0067.
    assert numbers.mean() == pytest.approx(2, abs=0.04)
    assert numbers.std() == pytest.approx(3, abs=0.03)
    centred = (numbers - 2) / 3
    within = [float(np.mean(np.abs(centred) < bound)) for bound in (1, 2, 3)]
    assert within == pytest.approx([0.6827, 0.9545, 0.9973], abs=0.006)
    assert np.mean(centred**3) == pytest.approx(0, abs=0.03)


def test_normal_is_box_and_mullers_formula() -> None:
    pair = draw(8, 0, 2, 5, dtype="float64")
    expected = np.sqrt(-2 * np.log(1 - pair[0])) * np.cos(2 * np.pi * pair[1])
    result = random.normal((5,), seed=8)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_dropout_zeroes_a_share_and_scales_the_rest() -> None:
    x = np.ones((100, 1000), "float32")
    result = random.dropout(x, 0.3, seed=1)
    assert result.dtype == np.float32
    assert set(np.unique(result)) == {np.float32(0), np.float32(1) / np.float32(0.7)}
    assert np.mean(result == 0) == pytest.approx(0.3, abs=0.006)  # deviation 0.0014
    assert np.array_equal(result == 0, draw(1, 0, 100, 1000) < np.float32(0.3))
    assert np.array_equal(random.dropout(x, 0.0, seed=1), x)


def test_dropout_repeats_its_noise_along_axes_of_one() -> None:
    result = random.dropout(np.ones((6, 40, 5), "f4"), 0.5, (None, 1, None), seed=2)
    assert np.array_equal(result, np.broadcast_to(result[:, :1], result.shape))
    assert 0 < np.mean(result == 0) < 1


def test_randint_covers_its_range_evenly() -> None:
    numbers = random.randint((10_000,), -2, 5, seed=3)
    assert numbers.dtype == np.int32
    counts = np.unique(numbers, return_counts=True)
    assert counts[0].tolist() == [-2, -1, 0, 1, 2, 3, 4]
    assert chi_square(counts[1]) < 22.5  # 6 degrees, 99.9 %
    assert random.randint((3,), 0, 5, dtype="uint8", seed=1).dtype == np.uint8


@pytest.mark.parametrize("spread", [1, 3, 7, 1000, 2**24 - 1])
def test_randint_never_reaches_its_end(spread: int) -> None:
    largest = np.float32(1 - 2.0**-24)
    assert np.floor(largest * np.float32(spread)) == spread - 1


def test_truncated_normal_stays_within_two_deviations() -> None:
    numbers = random.truncated_normal((300, 300), 1.0, 0.5, seed=6)
    assert np.abs(numbers - 1).max() <= 1
    assert numbers.mean() == pytest.approx(1, abs=0.01)
    assert numbers.std() == pytest.approx(0.5 * 0.8796, rel=0.01)


def test_categorical_follows_the_probabilities() -> None:
    shares = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        logits = np.log(shares).astype("float32") + 3
    drawn = random.categorical(logits, 20_000, seed=2)
    assert (drawn.shape, drawn.dtype) == ((2, 20_000), np.int32)
    actual = [np.bincount(row, minlength=3) / 20_000 for row in drawn]
    np.testing.assert_allclose(actual, shares, atol=0.012)  # deviation 0.0035


def test_shuffle_moves_rows_along_an_axis() -> None:
    x = np.arange(60).reshape(3, 20).astype("float32")
    result = random.shuffle(x, axis=1, seed=4)
    order = np.array([shuffled(4, 0, 20)])
    assert np.array_equal(result, np.take_along_axis(x, order.repeat(3, 0), axis=1))
    assert not np.array_equal(result, x)
    assert np.array_equal(random.shuffle(x[:1], seed=4), x[:1])


def test_draws_without_a_seed_differ() -> None:
    assert not np.array_equal(random.uniform((4,)), random.uniform((4,)))


# ---- seeds ---------------------------------------------------------------------------


def test_a_seed_generator_moves_on() -> None:
    seed = SeedGenerator(7)
    first, second = random.uniform((4,), seed=seed), random.uniform((4,), seed=seed)
    assert seed.state.numpy().tolist() == [7, 2]
    assert np.array_equal(first, draw(7, 0, 4))
    assert np.array_equal(second, draw(7, 1, 4))
    again = SeedGenerator.from_config(seed.get_config())
    assert np.array_equal(random.uniform((4,), seed=again), first)


def test_a_resumed_generator_continues() -> None:
    seed, other = SeedGenerator(7), SeedGenerator(1)
    random.uniform((4,), seed=seed)
    other.state.assign(seed.state)
    assert np.array_equal(
        random.normal((3,), seed=other), random.normal((3,), seed=seed)
    )


def test_a_traced_draw_reads_the_state_and_writes_the_next() -> None:
    seed = SeedGenerator(7)
    with Scope() as scope:
        first = random.uniform((4,), seed=seed)
        second = random.uniform((4,), seed=seed)
    assert isinstance(first, Value)
    assert seed.state.numpy().tolist() == [7, 0]
    state = scope.reads[seed.state]
    assert isinstance(state, Input)
    after = scope.writes[seed.state]
    known = {state: np.array([7, 40], "uint32")}
    item, two, moved = evaluate([first, second, after], known)
    assert np.array_equal(item, draw(7, 40, 4))
    assert np.array_equal(two, draw(7, 41, 4))
    assert moved.tolist() == [7, 42]
    assert moved.dtype == np.uint32


def test_the_counter_wraps_around() -> None:
    seed = SeedGenerator(7)
    seed.state.assign(np.array([7, 2**32 - 1], "uint32"))
    random.uniform((1,), seed=seed)
    assert seed.state.numpy().tolist() == [7, 0]


def test_bad_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        SeedGenerator(-1)
    with pytest.raises(ValueError, match="keyword arguments: sed"):
        SeedGenerator(sed=1)


def test_gamma_beta_and_binomial_have_their_moments() -> None:
    for alpha in (0.3, 1.0, 4.0):
        drawn = np.asarray(random.gamma((20000,), alpha, seed=3), "float64")
        np.testing.assert_allclose([drawn.mean(), drawn.var()], alpha, rtol=0.06)
    for a, b in ((0.4, 0.4), (2.0, 5.0)):
        drawn = np.asarray(random.beta((20000,), a, b, seed=4), "float64")
        spread = a * b / ((a + b) ** 2 * (a + b + 1))
        np.testing.assert_allclose(drawn.mean(), a / (a + b), rtol=0.03)
        np.testing.assert_allclose(drawn.var(), spread, rtol=0.06)
    tiny = random.beta((50,), 1e-6, 1e-6, seed=5)
    assert ((tiny >= 0) & (tiny <= 1)).all()
    counts = np.array([3, 9])
    drawn = random.binomial((5000, 2), counts, 0.25, seed=6)
    np.testing.assert_allclose(drawn.mean(axis=0), counts * 0.25, rtol=0.06)
    assert (drawn.max(axis=0) <= counts).all()
