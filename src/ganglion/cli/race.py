"""`ganglion race`: the same training in every engine; `ganglion report`: its page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from ganglion.cli.console import INTERRUPTED, decoding, say
from ganglion.cli.options import (
    FITS,
    BatchSize,
    RecipeOrNone,
    Size,
    Threads,
    above_zero,
    checked,
    choice,
    completed,
    completed_list,
    engine_names,
    parse_size,
    seed_option,
    share_option,
    sweep_keys,
)

OUT = Path("race-results")
SEVERAL = "race-report.html"
PRETRAINED = "pretrained"  # the name of such a race in its results


def race(
    recipe: RecipeOrNone = None,
    engines: Annotated[
        str | None,
        typer.Option(
            help="With commas between: ganglion, ganglion-precise, ganglion-numpy, "
            "keras, keras-jax, keras-torch, tensorflow, torch, torch-optimized, jax; "
            "those without a hyphenated variant, and torch-optimized, by default.",
            autocompletion=completed_list(engine_names),
        ),
    ] = None,
    runs: Annotated[
        int | None, typer.Option(help="Runs of each engine; 1 by default.", min=1)
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Epochs; the recipe's own by default.", min=1)
    ] = None,
    threads: Threads = None,
    device: Annotated[
        str | None,
        choice(
            "cpu",
            "cuda",
            help="cpu or cuda; cpu by default. On cuda, TF32 and bf16 have rows each.",
        ),
    ] = None,
    seed: Annotated[
        int | None, seed_option("Of the first run; the others count up from it. 0.")
    ] = None,
    batch_size: BatchSize = None,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for results and report.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the race in this folder.")
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            help="Seconds a run may take; 10 times the expected by default.",
            callback=checked(above_zero),
        ),
    ] = None,
    memory: Annotated[
        float | None,
        typer.Option(
            help="GB of address space a run may take; no limit by default.",
            callback=checked(above_zero),
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="Race at several points: lr=0.1,0.5. Keys: lr, momentum, batch-size, "
            "epochs, threads, seed, precision. Given twice, every combination is a "
            "point.",
            autocompletion=completed(sweep_keys),
        ),
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Race on a folder of images instead of a recipe."),
    ] = None,
    test: Annotated[
        float | None, share_option("how many to hold out, or their share; 0.2.")
    ] = None,
    size: Size = None,
    fit: Annotated[
        str | None, choice(*FITS, help="With --images: crop, resize or pad.")
    ] = None,
    pretrained: Annotated[
        bool,
        typer.Option(
            "--pretrained",
            help="With --images or image-folder: EfficientNet-Lite0 of ImageNet, most "
            "of it frozen, against PyTorch fine-tuning the same weights.",
        ),
    ] = False,
    on: Annotated[
        str | None,
        typer.Option(
            help="Run on a Ray cluster: ray (the one that this machine is a part of) "
            "or ray://HOST:PORT."
        ),
    ] = None,
) -> None:
    """Train a recipe in Ganglion and in its rivals; compare accuracy and time.

    All start from the same weights and see the same batches. Results, tables and a
    page with curves are kept in a folder; Ctrl-C loses nothing.
    """
    form = ImageOptions(images, test, size, fit)
    options: dict[str, Any] = {
        "runs": runs, "epochs": epochs, "batch_size": batch_size, "threads": threads,
        "seed": seed,
    }  # fmt: skip
    if pretrained:
        from ganglion.images import networks

        is_folder = recipe is None or (recipe == networks.NAME and not images)
        if not is_folder or any((resume, sweep, on, device, memory)):
            raise typer.BadParameter(
                "--pretrained goes with image-folder or --images, and with --test, "
                "--size, --fit, --engines, --runs, --epochs, --batch-size, --threads, "
                "--seed, --limit, --out. (--resume DIR goes on with one by itself.)"
            )
        _race_pretrained(form, out, options | {"limit": limit, "engines": engines})
        return
    from ganglion.race import settings

    bound = None if memory is None else int(memory * 1e9)
    limits: dict[str, Any] = {"limit": limit, "memory": bound}
    options |= {
        "device": device,
        "sweep": settings.parse_sweep(sweep) if sweep else None,
    }
    if resume is not None:
        if out is not None:
            raise typer.BadParameter("--resume goes on in its own folder: no --out.")
        if any(option is not None for option in form):
            raise typer.BadParameter("--resume knows its images: no --images.")
        names = None if engines is None else settings.split_names(engines)
        _resume(resume, options | {"recipe": recipe, "engines": names}, limits, on)
        return
    training = _recipe(recipe, form)
    chosen = settings.choose(training, engines=engines, on=on, **options, **limits)
    _run(chosen, _free(out or _default_folder(chosen.recipe)))


class ImageOptions(NamedTuple):
    """The options of a race on a folder of images."""

    folder: Path | None
    test: float | None
    size: str | None
    fit: str | None


def _resume(
    path: Path, options: dict[str, Any], limits: dict[str, Any], on: str | None
) -> None:
    """Continue a race of any kind."""
    from ganglion.race import settings
    from ganglion.race.results import load

    before, folder = load(path), path if path.is_dir() else path.parent
    if before.recipe != PRETRAINED:
        chosen = settings.of_race(before, path, options, on=on or "", **limits)
        _run(chosen, folder, before)
        return
    if any((on, options["device"], options["sweep"], limits["memory"])):
        raise typer.BadParameter(
            "this race is one of --pretrained: no --on, --device, --sweep, --memory."
        )
    settings.refuse_others(before, path, options)
    from ganglion.images import networks

    data = networks.read_source(before.images)
    before = replace(before, limit=limits["limit"] or before.limit)
    _run_pretrained(data, folder, before)


def _run(chosen: Any, folder: Path, before: Any = None) -> None:
    """Run a race, here or on a cluster, and report its results."""
    from ganglion.race import run_race, watch
    from ganglion.race.engines import engine

    kind = run_race.RaceRunner
    if chosen.on:
        from ganglion.race.cluster import run as cluster

        kind = cluster.RayRunner
    runner = kind(
        chosen,
        [engine(name) for name in chosen.engines],
        folder,
        shown := watch.watch_for(chosen.engines, chosen.runs, chosen.full_recipe.score),
        run_race.command_line(chosen, folder),
        before,
    )
    try:
        with shown:
            runner.run()
    except KeyboardInterrupt:
        _conclude(runner.race, folder)
        _stopped(folder)
    _end(runner.race, folder)


def _recipe(recipe: str | None, form: ImageOptions) -> Any:
    """Return the name of a recipe, or the recipe of a folder of images."""
    if form.folder is None:
        if any(option is not None for option in form):
            raise typer.BadParameter("--test, --size and --fit go with --images.")
        if recipe is None:
            raise typer.BadParameter("say which recipe; `ganglion recipes` lists them.")
        return recipe
    if recipe is not None:
        raise typer.BadParameter(f"a recipe ({recipe}) or --images, not both.")
    from ganglion.images import networks

    pixels, fit = parse_size(form.size), form.fit or "crop"
    with decoding() as watch:
        return networks.of_folder(
            form.folder, size=pixels, test=form.test, fit=fit, watch=watch
        )


def _race_pretrained(
    form: ImageOptions, out: Path | None, options: dict[str, Any]
) -> None:
    """Race on a pretrained start; without a folder, on the one of CIFAR-10."""
    from ganglion import config
    from ganglion import images as image_folders
    from ganglion.applications.efficientnet_lite import SIZE
    from ganglion.images import networks
    from ganglion.race import pretrained, settings

    images, test = form.folder, form.test
    if images is None:
        images = networks.cifar_folder()
        test = networks.CIFAR_HELD_OUT if test is None else test
    with decoding() as watch:
        data = image_folders.load(
            images,
            size=parse_size(form.size) or SIZE,
            test=test,
            color="rgb",
            fit=form.fit or "crop",
            watch=watch,
        )
    if data.test is None or not len(data.test):
        raise ValueError(f"{images} leaves nothing to test on: give --test N.")
    folder = _free(out or _default_folder(PRETRAINED))
    chosen = {name: value for name, value in options.items() if value is not None}
    chosen.setdefault("threads", config.threads())
    if "engines" in chosen:
        chosen["engines"] = settings.split_names(chosen["engines"])
    chosen |= {"test": test, "command": shlex.join(["ganglion", *sys.argv[1:]])}
    _run_pretrained(data, folder, pretrained.new_race(data, **chosen))


def _run_pretrained(data: Any, folder: Path, race: Any) -> None:
    """Run the missing runs of a race from a pretrained start."""
    from ganglion.race import pretrained

    try:
        race = pretrained.run(data, folder, race, say)
    except KeyboardInterrupt:
        _stopped(folder)
    _end(race, folder)


def _stopped(folder: Path) -> NoReturn:
    """Print how to resume a race after Ctrl-C, if there is something to resume."""
    from ganglion.race.results import FILE

    if (folder / FILE).exists():
        again = shlex.quote(str(folder))
        say(f"Stopped. Go on with: ganglion race --resume {again}")
    else:
        say("Stopped before the race began: nothing was kept.")
    raise typer.Exit(INTERRUPTED) from None


def _end(race: Any, folder: Path) -> None:
    _conclude(race, folder)
    if not any(run.done for run in race.finished):
        raise typer.Exit(1)


def _default_folder(recipe: str) -> Path:
    return OUT / f"{recipe}-{datetime.now():%Y%m%d-%H%M%S}"


def _free(folder: Path) -> Path:
    """Refuse to write over another race."""
    from ganglion.race.results import FILE

    if (folder / FILE).exists():
        raise ValueError(
            f"{folder} holds a race already: go on with it (--resume {folder}), or "
            "name another folder."
        )
    return folder


def _conclude(race: Any, folder: Path) -> None:
    """Write the pages and print the tables of the results."""
    from ganglion.race.report import html, markdown, terminal_tables

    if not race.finished:
        say("Nothing was measured.")
        return
    terminal_tables.show(race)
    markdown.write(race, folder)
    page = html.write([race], folder / "report.html")
    say(f"Kept in {folder}: results.json, results.md and {page}")


def report(
    races: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders of races.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the page goes; by default into the race's folder, or "
            f"{SEVERAL} here when there are several."
        ),
    ] = None,
) -> None:
    """Make the page on a race again, or compare several races on one page."""
    from ganglion.race import results
    from ganglion.race.report import html as page
    from ganglion.race.report import markdown

    loaded = [results.load(race) for race in races]
    if out is not None:
        if out.is_dir():
            out = out / page.FILE
    elif len(races) > 1:
        out = Path(SEVERAL)
    else:
        folder = races[0] if races[0].is_dir() else races[0].parent
        out = folder / page.FILE
        print(markdown.write(loaded[0], folder))
    print(page.write(loaded, out))
