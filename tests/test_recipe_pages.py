"""`docs/recipes` is what `tests/support/recipe_pages.py` writes today."""

from __future__ import annotations

import pytest
import recipe_pages

from ganglion import recipes

COMMAND = "python tests/support/recipe_pages.py writes them anew"


def test_the_pages_of_the_recipes_are_up_to_date(
    request: pytest.FixtureRequest,
) -> None:
    today = recipe_pages.pages()
    if request.config.getoption("--update-golden"):
        for path, text in today.items():
            path.write_text(text, encoding="utf-8")
    kept = {path.name for path in recipe_pages.FOLDER.iterdir() if path.is_file()}
    assert kept == {path.name for path in today}, COMMAND
    changed = [p.name for p, text in today.items() if p.read_text("utf-8") != text]
    assert not changed, COMMAND


def test_a_log_belongs_to_a_recipe_and_goes_to_its_end() -> None:
    for path in recipe_pages.LOGS.iterdir():
        about, epochs = recipe_pages.log_of(path.stem) or ({}, [])
        recipe = recipes.RECIPES[path.stem]
        assert about["command"].startswith(f"ganglion train {recipe.name} ")
        assert [epoch["epoch"] for epoch in epochs] == list(range(1, len(epochs) + 1))
        assert len(epochs) == recipe.epochs or recipe.name == "image-folder"
