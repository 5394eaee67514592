"""`ganglion race` with fake engines on a few drawn digits, as a program of its own."""

import cli_small

from ganglion import recipes
from ganglion.cli import app
from ganglion.race import engines, run_race

FAKES = {"ganglion": "good", "keras": "slow", "torch": "good"}

if __name__ == "__main__":
    recipes.load = cli_small.small
    run_race.PAUSE = 0.0
    for name, form in FAKES.items():
        engines.ENGINES[name] = engines.Engine(name, "race_fakes", (), (form,))
    app.main()
