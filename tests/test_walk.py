"""`docs/walk.md` prints what it says, and lists what one step of `Dense` passes."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys

import pytest
from folders import PACKAGE, ROOT, SUPPORT

PAGE = ROOT / "docs" / "walk.md"
# Ratchets: what it is today, on the way to 60 and 28; from a program to CUDA text, 30.
MOST_TOUCHED, MOST_READ, MOST_FOR_CUDA = 60, 28, 30


class Filler(doctest.DocTestRunner):
    """Runs the examples of a page, and keeps what each really prints."""

    def __init__(self) -> None:
        super().__init__(verbose=False)
        self.printed: list[tuple[doctest.Example, str]] = []

    def report_start(self, out, test, example) -> None:
        pass

    def report_success(self, out, test, example, got) -> None:
        self.printed.append((example, got))

    def report_failure(self, out, test, example, got) -> None:
        self.printed.append((example, got))

    def report_unexpected_exception(self, out, test, example, exc_info) -> None:
        raise AssertionError(f"{PAGE.name}: {example.source}") from exc_info[1]


def filled(text: str) -> str:
    """Return a page with what its examples print today."""
    parts = doctest.DocTestParser().parse(text, PAGE.name)
    examples = [part for part in parts if isinstance(part, doctest.Example)]
    runner = Filler()
    runner.run(doctest.DocTest(examples, {}, PAGE.name, str(PAGE), 0, text))
    printed = {id(example): got for example, got in runner.printed}
    return "".join(
        _shown(part, printed[id(part)]) if isinstance(part, doctest.Example) else part
        for part in parts
    )


def _shown(example: doctest.Example, printed: str) -> str:
    first, *rest = example.source.splitlines()
    lines = [f">>> {first}", *(f"... {line}".rstrip() for line in rest)]
    lines += [line.rstrip() for line in printed.splitlines()]
    indent = " " * example.indent
    return "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)


def test_the_walk_prints_what_it_says(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("llvmlite")
    text = PAGE.read_text(encoding="utf-8")
    today = filled(text)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(today, encoding="utf-8")
    assert today == text, "pytest tests/test_walk.py --update-golden writes it anew"


def walked(*arguments: str) -> tuple[int, set[str]]:
    """Return how many files a step passes, and which of them must be read."""
    command = [sys.executable, str(SUPPORT / "dense_walk.py"), "--files", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    count = re.match(r"(\d+) files", lines[-1])
    assert count
    read = {line.split()[-1] for line in lines[:-1] if "to read" in line}
    return int(count[1]), read


def test_one_step_of_dense_is_an_afternoon_of_reading() -> None:
    touched, read = walked()
    assert touched <= MOST_TOUCHED
    assert len(read) <= MOST_READ
    rows = re.findall(r"^\| (`.*?`) \|", PAGE.read_text("utf-8"), re.M)
    listed = {name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row)}
    assert read <= listed
    assert all((PACKAGE / name).exists() for name in listed)


def test_from_a_program_to_cuda_text() -> None:
    touched, _ = walked("--cuda")
    assert touched <= MOST_FOR_CUDA
