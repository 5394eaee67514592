"""`docs/steps.md` runs as it stands."""

from __future__ import annotations

import re
from typing import Any

from folders import ROOT

PAGE = ROOT / "docs" / "steps.md"


def test_the_examples_run_one_after_the_other() -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.M | re.S)
    assert len(blocks) == 7
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
