"""`ganglion race` with fake engines on a few drawn digits, as a program of its own."""

import cli_small
import forked_workers

from ganglion import recipes
from ganglion.cli import app
from ganglion.race import engines, run_race
from ganglion.race.engines import process

FAKES = {"ganglion": "good", "keras": "slow", "torch": "good"}

if __name__ == "__main__":
    recipes.load = cli_small.small
    run_race.PAUSE = 0.0
    process.start_worker = forked_workers.start_worker
    for name, form in FAKES.items():
        engines.ENGINES[name] = engines.Engine(name, "race_fakes", (), (form,))
    app.main()
