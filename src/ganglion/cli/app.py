"""The command line: train, bench, race, recipes, data, dump, cache, info."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion import config
from ganglion import recipes as recipe_book
from ganglion.cli import cam, predict, race, train
from ganglion.cli import report as cli_report
from ganglion.cli.options import (
    BatchSize,
    RecipeName,
    Threads,
    choice,
    completed,
    completed_list,
    dataset_names,
    engine_names,
    recipe_names,
)
from ganglion.race.engines import RIVALS
from ganglion.system import terminal

NAME = "ganglion"
INTERRUPTED = 130  # what a shell reports for a program that Ctrl-C ended

app = typer.Typer(
    name=NAME,
    help="Train small neural networks at the speed of the hardware.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; errors are one line, without a stack trace."""
    atexit.register(gc.freeze)  # the end need not look for garbage: it took 60 ms
    shows_traces = False
    try:
        config.check_environment()
        shows_traces = config.debugs()
        app(prog_name=NAME)
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        if shows_traces:
            raise
        print(terminal.lines(f"{NAME}: {error}"), file=sys.stderr)
        sys.exit(1)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"{NAME} {config.VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Take what comes before a command."""


def _say(text: str) -> None:
    """Tell the user something that is not a result: results go to standard output."""
    print(terminal.lines(text), file=sys.stderr, flush=True)


train.register(app)


@app.command(
    epilog="Examples:  ganglion bench mnist-mlp  |  "
    "ganglion bench mnist-cnn cifar10-cam --against torch,jax --rounds 9  |  "
    "ganglion bench --write docs/benchmarks.md  |  ganglion bench --augment  |  "
    "ganglion bench --device cuda"
)
def bench(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which recipes; all by default.",
            autocompletion=completed(recipe_names),
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Rivals, with commas between; all by default.",
            autocompletion=completed_list(engine_names),
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each engine.", min=1)] = 7,
    batch_size: BatchSize = None,
    threads: Threads = None,
    device: Annotated[str, choice("cpu", "cuda", help="cpu or cuda.")] = "cpu",
    precision: Annotated[
        str | None,
        typer.Option(
            help="With --device cuda: tf32, bf16, float32; tf32,bf16.",
            autocompletion=completed_list(lambda: config.PRECISIONS),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Keep the tables in this page, too.")
    ] = None,
    augment: Annotated[
        bool,
        typer.Option("--augment", help="What changing images at random costs."),
    ] = False,
) -> None:
    """Time a training step in Ganglion and in its rivals, side by side."""
    if augment:
        if device != "cpu" or precision is not None:
            raise typer.BadParameter(
                "--augment is measured on the CPU: no --device, no --precision."
            )
        if write is not None:
            raise typer.BadParameter("--augment has no page to --write; take --json.")
        against = against or ",".join(RIVALS)
        _bench_augment(recipes or [], against, rounds, batch_size, threads, json)
        return
    from ganglion.race.bench import report

    def keep(done: list[Any]) -> None:
        if not json:
            report.print_table(done[-1])
        if write is not None:
            command = " ".join(["ganglion", *sys.argv[1:]])
            command = command.replace(str(write), f"docs/{write.name}")
            report.write(done, write, command)

    done = report.measure(
        recipes or recipe_book.published(),
        against,
        rounds=rounds,
        batch_size=batch_size,
        threads=threads,
        device=device,
        precision=precision,
        each=keep,
        say=_say,
    )
    if json:
        print(report.as_json(done))
    if any(one.interrupted for one in done):
        raise typer.Exit(INTERRUPTED)


def _bench_augment(
    names: list[str],
    against: str,
    rounds: int,
    batch_size: int | None,
    threads: int | None,
    json: bool,
) -> None:
    from ganglion.race.bench import augment as bench_augment

    found = bench_augment.measure(
        names,
        against,
        rounds=rounds,
        batch_size=batch_size,
        threads=threads,
        say=_say,
    )
    if json:
        print(bench_augment.as_json(found))
    for one in found if not json else []:
        bench_augment.print_table(one)
    if any(one.interrupted for one in found):
        raise typer.Exit(INTERRUPTED)


@app.command(epilog="Example:  ganglion recipes")
def recipes() -> None:
    """List the published experiments."""
    from rich.table import Table

    from ganglion.system import terminal

    table = Table("recipe", "model", "parameters", "training", "published accuracy")
    for one in recipe_book.RECIPES.values():
        kind, arguments = one.optimizer
        how = ", ".join(f"{key} {value}" for key, value in arguments.items())
        table.add_row(
            one.name,
            one.title,
            f"{one.parameters:,}",
            f"{one.loss}, {kind} ({how}), batch {one.batch_size}, {one.epochs} epochs",
            "\n".join(f"{p.accuracy:.4f} {p.system}, {p.time}" for p in one.published),
        )
    terminal.show(table)


@app.command(
    epilog="Examples:  ganglion data  |  ganglion data fetch mnist  |  "
    "ganglion data fetch all"
)
def data(
    action: Annotated[
        str | None,
        typer.Argument(
            help="`fetch`, or nothing.", autocompletion=completed(lambda: ["fetch"])
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Which data set, or `all`.",
            autocompletion=completed(lambda: [*dataset_names(), "all"]),
        ),
    ] = None,
) -> None:
    """Show the data sets and where they are kept; fetch one."""
    from ganglion import datasets

    if action is None:
        _show_data()
        return
    if action != "fetch" or name is None:
        raise typer.BadParameter("say `ganglion data fetch NAME`.")
    for one in datasets.NAMES if name == "all" else [name]:
        _say(f"{one}: {datasets.fetch(one)}")


def _show_data() -> None:
    from rich.table import Table

    from ganglion import datasets
    from ganglion.system import terminal

    table = Table("data set", "what", "train", "test", "here")
    for one in datasets.info():
        here = f"{one.size / 1e6:.0f} MB" if one.size is not None else "not yet"
        shapes = (str(one.train_shape), str(one.test_shape))
        table.add_row(one.name, one.title, *shapes, here)
    terminal.show(table)
    print(f"Kept in {datasets.info()[0].path.parent}; GANGLION_HOME moves it.")


@app.command(
    epilog="Examples:  ganglion dump mnist-mlp --graph  |  "
    "ganglion dump mnist-cnn --plan --step predict  |  "
    "ganglion dump mnist-mlp --backend cuda --source"
)
def dump(
    recipe: RecipeName,
    graph: Annotated[
        bool, typer.Option("--graph", help="The graph of a step.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Its kernels, memory and barriers.")
    ] = False,
    source: Annotated[
        bool, typer.Option("--source", help="The kernels as LLVM IR, or CUDA C.")
    ] = False,
    asm: Annotated[
        bool, typer.Option("--asm", help="The kernels as assembly, or PTX.")
    ] = False,
    backend: Annotated[
        str,
        choice("cpu", "cuda", help="Compiled for cpu or cuda; neither needs a GPU."),
    ] = "cpu",
    step: Annotated[
        str, choice("train", "test", "predict", help="train, test or predict.")
    ] = "train",
    batch_size: BatchSize = None,
) -> None:
    """Print what a recipe is compiled from, and what it becomes."""
    from ganglion.cli import dump as dumping

    chosen = {"graph": graph, "plan": plan, "source": source, "asm": asm}
    wanted = [name for name, is_asked in chosen.items() if is_asked]
    if not wanted:
        raise typer.BadParameter("say what to print: --graph, --plan, --source, --asm.")
    program = dumping.program_of(recipe_book.get(recipe), step, batch_size)
    for form in wanted:
        print(dumping.text_of(program, form, backend))


@app.command(epilog="Examples:  ganglion cache  |  ganglion cache clear")
def cache(
    action: Annotated[
        str | None,
        typer.Argument(
            help="`clear`, or nothing.", autocompletion=completed(lambda: ["clear"])
        ),
    ] = None,
) -> None:
    """Show where compiled programs are kept, and how many; clear them."""
    from ganglion.compiler import cache as cpu_cache

    if action not in (None, "clear"):
        raise typer.BadParameter(f"{action!r}; say `ganglion cache clear`.")
    held = cpu_cache.contents()
    size = f"{held.count} compiled programs, {held.size / 1e6:.1f} MB"
    if action == "clear":
        cpu_cache.clear()
        _say(f"Removed {size}, from {held.folder}.")
        return
    print(f"{size} of at most {cpu_cache.LIMIT / 1e6:.0f} MB, in {held.folder}")


@app.command(epilog="Example:  ganglion info")
def info() -> None:
    """Show versions, the processor, which backends work here, and what is kept."""
    from ganglion.race import machine

    for name, value in (machine.facts() | machine.kept()).items():
        print(terminal.lines(f"{name:<12} {value}"))


cam.register(app)
race.register(app)
cli_report.register(app)
predict.register(app)

if __name__ == "__main__":
    main()
