"""What is raced: the choices of one race, filled in, checked, and read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganglion import config, recipes
from ganglion.images import networks
from ganglion.race import machine
from ganglion.race.engines import ON_GPU, RIVALS, Engine, engine
from ganglion.race.results import DEVICES, Race
from ganglion.recipes import Recipe

DEFAULT_ENGINES = ("ganglion", *RIVALS)
GPU_ENGINES = ("ganglion", *ON_GPU)
GPU_PRECISIONS = ("tf32", "bf16")
_FIXED = ("recipe", "engines", "runs", "epochs", "batch_size", "threads", "device",
          "seed", "sweep")  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """One race: the same training for every engine.

    >>> settings = choose("mnist-mlp", engines="ganglion,torch", epochs=3, threads=2)
    >>> settings.engines, settings.batch_size, settings.runs
    (('ganglion', 'torch'), 128, 1)
    """

    recipe: str
    engines: tuple[str, ...]
    runs: int
    epochs: int
    batch_size: int
    threads: int
    device: str
    seed: int
    limit: float | None = None  # seconds a run may take; by first measurements if None
    memory: int | None = None  # bytes of address space a run may take
    sweep: dict[str, list[Any]] = field(default_factory=dict)  # values of each key
    point: dict[str, Any] = field(default_factory=dict)  # one point of a sweep
    optimizer: dict[str, float] = field(default_factory=dict)  # other than the recipe's
    on: str = ""  # a cluster; this machine if empty
    made: Recipe | None = None  # from a folder of images; else the one of the name
    dtype: str = "float32"  # of the engines; a lockstep may take a finer one (`exact`)
    precision: str = "float32"  # of products; on a GPU, a sweep has others

    def __post_init__(self) -> None:
        if isinstance(self.made, dict):  # it has travelled as plain data
            object.__setattr__(self, "made", recipes.from_data(self.made))

    @property
    def what(self) -> Recipe:
        """The recipe."""
        return self.made or recipes.get(self.recipe)

    @property
    def label(self) -> str:
        """The point of a sweep as a part of a file's name, "" outside of a sweep."""
        return "".join(f"-{key}-{value}" for key, value in self.point.items())

    @property
    def learning_rate(self) -> float:
        """The rate of the recipe, or of the point of a sweep."""
        return float(
            recipes.tuned(self.what, self.optimizer).optimizer[1]["learning_rate"]
        )

    def seed_of(self, number: int) -> int:
        """Return the seed of a run (from 1): equal for all engines."""
        return self.seed + number - 1


def choose(
    recipe: str | Recipe,
    *,
    engines: str | None = None,
    runs: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    threads: int | None = None,
    device: str | None = None,
    seed: int | None = None,
    limit: float | None = None,
    memory: int | None = None,
    sweep: dict[str, list[Any]] | None = None,
    on: str | None = None,
) -> Settings:
    """Return the settings of a new race: what is not given is the recipe's own."""
    made = None if isinstance(recipe, str) else recipe
    chosen = made or recipes.get(str(recipe))
    usual = GPU_ENGINES if device == "cuda" else DEFAULT_ENGINES
    names = usual if engines is None else named(engines)
    for name in names:
        engine(name)  # refuses what is unknown
    device = device or "cpu"
    if device not in DEVICES:
        raise ValueError(f"Unknown device {device!r}: choose {' or '.join(DEVICES)}.")
    sweep = _with_precisions(sweep or {}, device)
    given = {"epochs": epochs, "batch-size": batch_size, "threads": threads,
             "seed": seed}  # fmt: skip
    for name, value in given.items():
        if value is not None and name in sweep:
            raise ValueError(f"--{name} is swept over: leave --{name} {value} out.")
    first = {name: values[0] for name, values in sweep.items()}
    threads = threads or first.get("threads") or config.threads()
    most = max([threads, *sweep.get("threads", ())])
    if most > machine.cores() and not on:  # the nodes of a cluster may have more
        raise ValueError(
            f"--threads {most}: this machine has {machine.cores()} cores to use, "
            "and more threads than cores would only measure their quarrel."
        )
    return Settings(
        recipe=chosen.name,
        engines=names,
        runs=runs or 1,
        epochs=epochs or first.get("epochs") or chosen.epochs,
        batch_size=batch_size or first.get("batch-size") or chosen.batch_size,
        threads=threads,
        device=device,
        seed=seed or first.get("seed") or 0,
        limit=limit,
        memory=memory,
        sweep=sweep,
        on=on or "",
        made=made,
    )


def _with_precisions(sweep: dict[str, list[Any]], device: str) -> dict[str, list[Any]]:
    """Return a sweep with the precisions of a device, each in rows of its own."""
    if device == "cuda":
        return {"precision": list(GPU_PRECISIONS)} | sweep
    if "precision" in sweep:
        raise ValueError("--sweep precision goes with --device cuda: CPUs use float32.")
    return sweep


def named(text: str) -> tuple[str, ...]:
    """Return the names in a text with commas, each once.

    >>> named("torch, jax,torch")
    ('torch', 'jax')
    """
    found = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not found:
        raise ValueError("--engines names no engine.")
    return found


def of_race(
    race: Race,
    folder: Path,
    given: dict[str, Any],
    *,
    limit: float | None = None,
    memory: int | None = None,
    on: str = "",
) -> Settings:
    """Return the settings of a race that goes on; refuse options that contradict it.

    Limits, and the cluster, are no part of what is measured: they may be given anew.
    """
    refuse_others(race, folder, given)
    fixed = {name: getattr(race, name) for name in _FIXED}
    return Settings(
        **fixed,
        limit=limit or race.limit or None,
        memory=memory or race.memory or None,
        on=on or race.on,
        made=networks.of_source(race.images) if race.images else None,
    )


def refuse_others(race: Race, folder: Path, given: dict[str, Any]) -> None:
    """Refuse options that contradict a race that goes on; None was not given."""
    for name, value in given.items():
        kept = getattr(race, name)
        if value is not None and value != kept:
            option = "RECIPE" if name == "recipe" else f"--{name.replace('_', '-')}"
            shown = ",".join(kept) if isinstance(kept, tuple) else kept
            if name == "sweep":
                each = (f"{key}={','.join(map(str, v))}" for key, v in kept.items())
                shown = " ".join(each) or "of nothing"
            raise ValueError(
                f"{folder} holds a race with {option} {shown}: leave {option} out, or "
                "start another race with another --out."
            )


def engines_of(settings: Settings) -> list[Engine]:
    """Return the records of the engines that race."""
    return [engine(name) for name in settings.engines]
