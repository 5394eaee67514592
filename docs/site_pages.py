"""Pages of the site that are made when it is built: a hook of MkDocs (`mkdocs.yml`).

Files from elsewhere in the repository become pages, the recipes are listed, and every
public name gets its entry in the reference. Links between files of the repository
become links between pages; those to files that are no page become plain text.
"""

from __future__ import annotations

import importlib
import inspect
import posixpath
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "conduct.md": "CODE_OF_CONDUCT.md",
    "security.md": "SECURITY.md",
    "glossary.md": "src/ganglion/compiler/README.md",
}
PAGE_OF = {source: page for page, source in ELSEWHERE.items()}

# Pages of the reference: title, and the modules whose public names they hold. "a -> b"
# takes of a module what is defined in b.
LAYERS = "ganglion.layers -> ganglion.layers."
REFERENCE: dict[str, tuple[str, tuple[str, ...]]] = {
    "models": (
        "Models",
        ("ganglion.models", "ganglion -> ganglion.training.functions"),
    ),
    "layers-core": (
        "Core layers",
        tuple(
            LAYERS + part
            for part in ("base", "inputs", "dense", "einsum_dense", "activating",
                         "merging", "reversible", "masking", "foreign")
        ),
    ),
    "layers-images": (
        "Layers for images and signals",
        tuple(LAYERS + part for part in ("conv", "pools", "shape")),
    ),
    "layers-training": (
        "Normalisation and regularisation",
        tuple(LAYERS + part for part in ("norm", "spectral", "dropout")),
    ),
    "layers-sequences": (
        "Layers for sequences",
        tuple(LAYERS + part for part in ("rnn", "attention", "multi_head")),
    ),
    "layers-preprocessing": (
        "Preprocessing",
        tuple(LAYERS + part for part in ("scaling", "preprocessing")),
    ),
    "layers-augmentation": ("Augmentation", (LAYERS + "augmentation",)),
    "losses": ("Losses", ("ganglion.losses",)),
    "metrics": ("Metrics", ("ganglion.metrics -> ganglion.metrics",)),
    "optimizers": (
        "Optimizers and schedules",
        ("ganglion.optimizers", "ganglion.optimizers.schedules"),
    ),
    "callbacks": ("Callbacks", ("ganglion.callbacks",)),
    "gradients": (
        "Gradients and variables",
        ("ganglion -> ganglion.gradients", "ganglion -> ganglion.variables"),
    ),
    "many": (
        "Many models",
        ("ganglion.many", "ganglion.many.estimators -> ganglion.many.estimators"),
    ),
    "wrappers": ("Wrappers for scikit-learn", ("ganglion.wrappers",)),
    "distillation": ("Distillation", ("ganglion.distillation",)),
    "files": (
        "Files and export",
        ("ganglion.saving", "ganglion.export -> ganglion.export"),
    ),
    "quantizers": ("Quantizers", ("ganglion.quantizers -> ganglion.quantizers",)),
    "weights": (
        "Initializers, regularizers, constraints",
        tuple(
            f"ganglion.{name} -> ganglion.{name}"
            for name in ("initializers", "regularizers", "constraints")
        ),
    ),
    "activations": ("Activations", ("ganglion.activations",)),
    "ops": ("Operations", ("ganglion.ops",)),
    "random": ("Random numbers", ("ganglion.random -> ganglion.random",)),
    "data": ("Data", ("ganglion.datasets", "ganglion.images")),
    "utils": ("Utilities", ("ganglion.utils",)),
    "explain": ("Explanations", ("ganglion.explain", "ganglion.visualization")),
    "applications": ("Applications", ("ganglion.applications",)),
    "config": ("Configuration", ("ganglion.config -> ganglion.config",)),
}  # fmt: skip
OF_LIBRARIES = ("deserialize", "serialize", "get")  # the same in every room


# ---- hooks ---------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List recipes and the reference in the navigation."""
    names = sorted(path.name for path in (ROOT / "docs" / "recipes").glob("*.md"))
    names.sort(key=lambda name: name != "index.md")
    _fill(config.nav, "Recipes", [f"recipes/{name}" for name in names])
    pages = [{title: f"api/{name}.md"} for name, (title, _) in REFERENCE.items()]
    _fill(config.nav, "Reference", ["api/index.md", *pages, "keras.md"])
    return config


def _fill(nav: Any, section: str, pages: list[Any]) -> None:
    for entry in nav:
        if section in entry:
            entry[section] = pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from elsewhere, and those of the reference."""
    for page, source in ELSEWHERE.items():
        path = str(ROOT / source)
        files.append(File.generated(config, page, abs_src_path=path))
    files.append(File.generated(config, "api/index.md", content=_contents()))
    for name, (title, modules) in REFERENCE.items():
        text = _reference(title, modules)
        files.append(File.generated(config, f"api/{name}.md", content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Lead links between files of the repository to their pages."""
    uri = page.file.src_uri
    source = ELSEWHERE.get(uri, f"docs/{uri}")

    def replaced(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        found = _page_at(posixpath.normpath(f"{posixpath.dirname(source)}/{target}"))
        if found is None:
            return text
        return f"[{text}]({posixpath.relpath(found, posixpath.dirname(uri))}{anchor})"

    link = r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\(([^)#:\s]+)(#[^)\s]*)?\)"
    markdown = re.sub(link, replaced, markdown)
    if uri in ELSEWHERE:  # pictures are where they are
        markdown = re.sub(r"(!\[[^\]]*\])\(docs/", r"\1(", markdown)
    return markdown


def _page_at(path: str) -> str | None:
    """Return the page of a file of the repository, None where it has none."""
    if path in PAGE_OF:
        return PAGE_OF[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return None


# ---- the reference -------------------------------------------------------------------


def _contents() -> str:
    """Return the first page of the reference: every name, with its page."""
    lines = [
        "# Reference",
        "",
        "Every public class and function. Names, arguments and meanings are Keras'; "
        "[every name of Keras](../keras.md) says what there is, and "
        "[differences](../differences.md) where Ganglion does otherwise. "
        "The examples run as tests.",
    ]
    for name, (title, modules) in REFERENCE.items():
        links = [f"[`{_name(e)}`]({name}.md#{_anchor(e)})" for e in public(modules)]
        lines += ["", f"## [{title}]({name}.md)", "", ", ".join(links)]
    return "\n".join(lines) + "\n"


def _reference(title: str, modules: Iterable[str]) -> str:
    lines = [f"# {title}"]
    for entry in public(modules):
        lines += ["", f"::: {entry.place}" if entry.place else _described(entry)]
        if entry.others:
            names = ", ".join(f"`{name}`" for name in entry.others)
            lines += ["", f"Also: {names}."]
    return "\n".join(lines) + "\n"


def _described(entry: Entry) -> str:
    """Return the entry of a function that is made by another one."""
    sentence = inspect.getdoc(entry.thing) or ""
    head = f"## `{_name(entry)}` {{ #{_anchor(entry)} }}"
    return f"{head}\n\n{sentence.partition('Args:')[0].strip()}"


def _name(entry: Entry) -> str:
    return entry.path.rpartition(".")[2]


def _anchor(entry: Entry) -> str:
    return entry.place or entry.path


class Entry(NamedTuple):
    """A public class or function."""

    path: str  # by which it is public
    thing: Any
    place: str  # where it is defined
    others: list[str]  # its other names


def public(modules: Iterable[str]) -> list[Entry]:
    """Return what modules offer, by name."""
    names: dict[int, tuple[Any, list[str]]] = {}
    for text in modules:
        offering, _, defining = text.partition(" -> ")
        module = importlib.import_module(offering)
        for name in _offered(module):
            thing = getattr(module, name)
            if _is_shown(name, thing, defining or "ganglion"):
                names.setdefault(id(thing), (thing, []))[1].append(f"{offering}.{name}")
    entries = []
    for thing, paths in names.values():
        own = next((p for p in paths if p.endswith(f".{thing.__name__}")), paths[0])
        others = sorted({path.rpartition(".")[2] for path in paths if path != own})
        entries.append(Entry(own, thing, _place(thing), others))
    return sorted(entries, key=lambda entry: _name(entry).lower())


def _place(thing: Any) -> str:
    """Return where a thing is defined, "" if it was made by a function elsewhere."""
    is_there = vars(sys.modules[thing.__module__]).get(thing.__name__) is thing
    return f"{thing.__module__}.{thing.__qualname__}" if is_there else ""


def _offered(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None)
    return list(names or (name for name in vars(module) if not name.startswith("_")))


def _is_shown(name: str, thing: Any, defining: str) -> bool:
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return False
    if "<locals>" in thing.__qualname__:  # old spellings that only warn
        return False
    return name not in OF_LIBRARIES and f"{thing.__module__}.".startswith(defining)
