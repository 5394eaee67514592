"""`ganglion doctor`: problems of this machine's set-up, and how to fix them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import typer

from ganglion import config
from ganglion.cli import doctor_machine, doctor_packages, doctor_system
from ganglion.cli.findings import Check, Finding, Status
from ganglion.system import terminal

CHECKS: tuple[Check, ...] = (
    doctor_packages.python,
    doctor_packages.distribution,
    doctor_packages.requirements,
    doctor_system.environment,
    doctor_machine.compiler,
    doctor_machine.processor,
    doctor_machine.cores,
    doctor_machine.memory,
    doctor_machine.gpu,
    doctor_system.home,
    doctor_system.clock,
    doctor_system.data,
    doctor_packages.extras,
)


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="The findings as one JSON object.")
    ] = False,
) -> None:
    """Report problems of this machine's set-up, and how to fix them.

    Ends with status 1 if there is a problem; warnings are none.
    """
    findings = list(examined())
    print(_as_json(findings) if as_json else terminal.lines(_as_text(findings)))
    if any(finding.status is Status.PROBLEM for finding in findings):
        raise typer.Exit(1)


def examined() -> Iterator[Finding]:
    """Yield the findings of all checks; one that fails is a finding itself."""
    for check in CHECKS:
        try:
            yield from check()
        except Exception as error:  # whatever is broken here, the rest is reported
            text = f"cannot be examined: {type(error).__name__}: {error}"
            name = check.__name__.replace("_", " ")
            yield Finding(name, Status.PROBLEM, text, "Please report this as a bug.")


def _as_text(findings: list[Finding]) -> str:
    lines = [f"Ganglion {config.VERSION}"]
    for finding in findings:
        lines.append(f"{finding.status.value:<8} {finding.topic:<14} {finding.text}")
        if finding.mend:
            lines.append(f"{'':<23} -> {finding.mend}")
    return "\n".join([*lines, "", _summary(findings)])


def _summary(findings: list[Finding]) -> str:
    problems, warnings = (
        sum(finding.status is status for finding in findings)
        for status in (Status.PROBLEM, Status.WARNING)
    )
    if not problems and not warnings:
        return "All is well."
    counted = [(problems, "problem"), (warnings, "warning")]
    parts = [f"{n} {word}{'s' * (n > 1)}" for n, word in counted if n]
    return f"{' and '.join(parts)}."


def _as_json(findings: list[Finding]) -> str:
    rows = [
        {
            "topic": finding.topic,
            "status": finding.status.value,
            "text": finding.text,
            "mend": finding.mend,
        }
        for finding in findings
    ]
    return json.dumps({"version": config.VERSION, "findings": rows}, indent=2)
