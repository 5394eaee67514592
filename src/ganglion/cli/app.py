"""The command line: all commands, with the examples that their help ends with."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from ganglion import config
from ganglion import recipes as recipe_book
from ganglion.cli import (
    bench,
    cam,
    doctor,
    export,
    info,
    predict,
    race,
    run,
    serve,
    sweep,
    train,
)
from ganglion.cli.options import BatchSize, RecipeName, choice
from ganglion.system import terminal

NAME = "ganglion"

app = typer.Typer(
    name=NAME,
    help="Train small neural networks at the speed of the hardware.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; errors are a line or two, without a stack trace."""
    atexit.register(gc.freeze)  # the end need not look for garbage: it took 60 ms
    try:
        app(prog_name=NAME)
    except (ValueError, RuntimeError, OSError, ImportError) as error:
        if _shows_traces():
            raise
        notes = getattr(error, "__notes__", [])[:1]  # which model it is, of many
        text = "\n".join((f"{NAME}: {error}", *notes))
        print(terminal.lines(text), file=sys.stderr)
        sys.exit(1)


def _shows_traces() -> bool:
    try:
        return config.debugs()
    except ValueError:  # the variable itself is wrong
        return False


def _show_version(is_asked: bool) -> None:
    if is_asked:
        print(f"{NAME} {config.VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
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
    if context.invoked_subcommand != doctor.doctor.__name__:  # it lists all of them
        config.check_environment()


def _add(command: Callable[..., Any], *examples: str, **settings: Any) -> None:
    lines = [f"{NAME} {command.__name__} {example}".rstrip() for example in examples]
    word = "Examples" if len(lines) > 1 else "Example"
    epilog = f"{word}:  {'  |  '.join(lines)}"
    app.command(epilog=epilog, context_settings=settings)(command)


_add(
    train.train,
    "mnist-mlp --epochs 3 --log steps",
    "mnist-cnn --save cnn.keras --watch",
    "mnist-cnn --resume cnn.keras --save cnn.keras",
    "cifar10-cam --no-augment --epochs 5",
    "--images photos --test 192 --save pets.keras",
)
_add(
    run.run,
    "train.py --epochs 3",
    "--keras 2 mnist_cnn.py",
    # All words after the script are its own, whatever they look like.
    allow_extra_args=True,
    ignore_unknown_options=True,
    allow_interspersed_args=False,
)
_add(
    bench.bench,
    "mnist-mlp",
    "mnist-cnn cifar10-cam --against torch,jax --rounds 9",
    "--write docs/benchmarks.md",
    "--networks resnet-20 u-net --threads 2",
    "--augment",
    "--device cuda",
)
_add(info.recipes, "")
_add(info.data, "", "fetch mnist", "fetch all")


@app.command(
    epilog="Examples:  ganglion dump mnist-mlp --graph  |  "
    "ganglion dump mnist-cnn --plan --step predict  |  "
    "ganglion dump mnist-mlp --backend cuda --source  |  "
    "ganglion dump mnist-mlp --backend cuda --plan --after prefetch"
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
    after: Annotated[
        str | None,
        typer.Option(
            metavar="PASS",
            help="With --plan: the stage after this pass of the backend's pipeline.",
        ),
    ] = None,
    batch_size: BatchSize = None,
) -> None:
    """Print what a recipe is compiled from, and what it becomes."""
    from ganglion.cli import dump as dumping

    chosen = {"graph": graph, "plan": plan, "source": source, "asm": asm}
    wanted = [name for name, is_asked in chosen.items() if is_asked]
    if not wanted:
        raise typer.BadParameter("say what to print: --graph, --plan, --source, --asm.")
    if after is not None:
        if not plan:
            raise typer.BadParameter("--after PASS is a stage of the --plan.")
        names = dumping.pass_names(backend)
        if after not in names:
            raise typer.BadParameter(
                f"there is no pass {after!r} for {backend}; there are: "
                f"{', '.join(names)}."
            )
    config.set_verify_passes(True)
    program = dumping.program_of(recipe_book.get(recipe), step, batch_size)
    for form in wanted:
        print(dumping.text_of(program, form, backend, after))


_add(info.cache, "", "clear")
_add(info.info, "")
_add(doctor.doctor, "", "--json")
_add(
    cam.cam,
    "cam.keras --data cifar10 --out maps",
    "cam.keras cat.jpg dog.jpg",
    "cam.keras --data cifar10 --class cat --limit 100",
)
_add(
    race.race,
    "mnist-mlp --epochs 3",
    "mnist-cnn --engines ganglion,torch,jax --runs 4 --out cnn",
    "--images photos --test 192 --runs 4",
    "--resume cnn",
)
_add(
    sweep.sweep,
    "mnist-perceptron --seeds 0-99",
    "mnist-mlp --set lr=0.05,0.1,0.2 --seeds 0-9 --epochs 3",
    "net.py --set units=32,64 --folds 5",
    "net.py --seeds 0-9 -- --data table.npy",
    allow_extra_args=True,  # of the script
)
_add(race.report, "results/mnist-mlp", "before after --out compared.html")
_add(
    predict.predict,
    "pets.keras cat.jpg",
    "pets.keras holiday/ --format csv > found.csv",
)
_add(
    serve.serve,
    "pets.keras",
    "mnist.keras --port 9000 --rate 20",
    "net.keras --host 0.0.0.0 --max-mb 2",
)
_add(
    predict.evaluate,
    "pets.keras --images photos",
    "pets.keras --images photos --all --out confusion.png",
)
_add(
    export.export,
    "digits.keras digits.c",
    "lstm.keras lstm.c --shape 100x8 --weights file",
    "digits.keras digits.c --int8 --sample digits.npz",
    "digits.keras digits.o --target aarch64-linux",
    "digits.keras digits.py",
    "digits.keras digits.wasm",
    "digits.keras --page try-it",
    "--formats",
)

if __name__ == "__main__":
    main()
