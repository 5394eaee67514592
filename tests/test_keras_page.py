"""`docs/keras.md` says of every public name of Keras what it is here."""

from __future__ import annotations

import keras_page
import pytest

pytestmark = pytest.mark.rivals


@pytest.fixture(scope="module")
def table(keras):
    return keras_page.rows(keras)


def test_the_page_is_up_to_date(table, request):
    today = keras_page.page(table)
    if request.config.getoption("--update-golden"):
        keras_page.PAGE.write_text(today, encoding="utf-8")
    assert today == keras_page.PAGE.read_text(encoding="utf-8"), (
        "pytest tests/test_keras_page.py --update-golden writes it anew"
    )


def test_nearly_all_names_are_here(table):
    assert len(table) > 1400
    assert keras_page.share(table) >= 0.97


def test_what_is_otherwise_has_a_reason(table):
    bare = [row for row in table if row.verdict != "yes" and not row.note]
    assert bare == []


def test_a_name_that_only_raises_is_not_taken_for_one_that_works(table):
    """Names alone would do: the table must look into what is behind them."""
    verdicts = {f"{row.module}.{row.name}": row.verdict for row in table}
    assert verdicts["keras.callbacks.OrbaxCheckpoint"] == "no"
    assert verdicts["keras.layers.TorchModuleWrapper"] == "no"
    assert verdicts["keras.config.enable_unsafe_deserialization"] == "no"
    assert verdicts["keras.distribution.ModelParallel"] == "differs"
    assert verdicts["keras.layers.AveragePooling2D"] == "differs"
    assert verdicts["keras.layers.Dense"] == "yes"
