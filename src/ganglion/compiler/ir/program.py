"""One step as a graph, with what a backend must know to run it many times."""

from __future__ import annotations

from dataclasses import dataclass

from ganglion.compiler.ir.graph import Graph


@dataclass(frozen=True)
class Program:
    """One step as a graph, and what its inputs and outputs stand for.

    Data inputs stay as they are for many steps. A state input's new value is the
    output of the same name; one without such an output is only read. Results are
    outputs that are collected step by step.
    """

    graph: Graph
    data: tuple[str, ...]
    state: tuple[str, ...]
    results: tuple[str, ...]
