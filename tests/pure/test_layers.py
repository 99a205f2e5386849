"""The shape of the house: which module may use which, and what each keeps its hands off."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import doesitrun
from doesitrun import screen

SOURCE = Path(doesitrun.__file__).parent
LAYERS = [
    ("outcomes",),
    ("records", "errors"),
    ("settings", "files"),
    ("tasks",),
    ("targets",),
    ("hub",),
    ("select",),
    ("plan",),
    ("script",),
    ("environment", "isolate", "supervise"),
    ("pool",),
    ("stacks",),
    ("doctor",),
    ("explain", "tracebacks"),
    ("verify",),
    ("rows",),
    ("graphs",),
    ("store",),
    ("catalog",),
    ("campaign",),
    ("demonstration",),
    ("screen",),
    ("app",),
    ("cli", "__main__"),
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
FILES = sorted(SOURCE.rglob("*.py"))
IN_STACK = {path for path in FILES if path.parent.name == "instack"}


def top(path: Path) -> str:
    """The layer that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(path: Path) -> set[str]:
    """Dotted names of everything the file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def uses(path: Path) -> set[str]:
    """The layers that a file imports."""
    names = {name.split(".")[1] for name in imports(path) if name.startswith("doesitrun.")}
    return {name for name in names if name in LEVEL}


@pytest.mark.parametrize("path", [p for p in FILES if (p not in IN_STACK and p.name != "__init__.py") or p.parent != SOURCE], ids=str)
def test_imports_go_only_leftwards(path: Path) -> None:
    if path in IN_STACK:
        assert not any(name.split(".")[0] == "doesitrun" for name in imports(path))
        return
    assert top(path) in LEVEL, f"{path.name} has no place in LAYERS"
    beyond = {name for name in uses(path) if LEVEL[name] > LEVEL[top(path)]}
    assert beyond == set()


def owners(package: str) -> set[str]:
    """Layers whose files import the package."""
    return {top(path) for path in FILES if any(name == package or name.startswith(f"{package}.") for name in imports(path))}


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("torch", {"instack"}),
        ("transformers", {"instack"}),
        ("subprocess", {"isolate", "supervise"}),
        ("multiprocessing", set()),
        ("huggingface_hub", {"hub", "graphs"}),
        ("fsspec", {"graphs"}),
        ("rich", {"screen"}),
        ("typer", {"cli"}),
        ("ray", {"pool"}),
        ("gradio", {"app"}),
        ("fastapi", {"app"}),
        ("jinja2", {"app"}),
    ],
)
def test_each_library_has_its_one_place(package: str, allowed: set[str]) -> None:
    assert owners(package) <= allowed


def test_no_module_but_its_own_names_a_target() -> None:
    """Other modules treat all targets alike: none compares with a target's name."""
    for path in FILES:
        if top(path) in ("targets", "instack", "cli", "demonstration"):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Compare):
                constants = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                assert not constants & {"neuron", "cuda", "cpu"}, f"{path}:{node.lineno}"


@pytest.mark.parametrize("module", ["doesitrun", "doesitrun.cli", "doesitrun.campaign", "doesitrun.screen"])
def test_importing_brings_no_heavy_library(module: str) -> None:
    heavy = "{'torch', 'transformers', 'pandas', 'pyarrow', 'gradio', 'ray', 'numpy', 'huggingface_hub'}"
    code = f"import sys, {module}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def too_long(path: Path) -> list[str]:
    """What of a file is over its budget."""
    text = path.read_text(encoding="utf-8")
    functions = [node for node in ast.walk(tree(path)) if isinstance(node, ast.FunctionDef)]
    found = [f"{path}:{node.lineno} {node.name}" for node in functions if (node.end_lineno or 0) - node.lineno > 60]
    return found + ([str(path)] if len(text.splitlines()) > 450 else [])


def test_functions_and_modules_keep_to_their_budget() -> None:
    assert [each for path in FILES for each in too_long(path)] == []


def test_every_screen_is_found_where_it_is_said_to_be() -> None:
    assert all(callable(getattr(screen, name)) for name in screen.__all__)
    with pytest.raises(AttributeError):
        screen.nothing  # noqa: B018


def test_a_look_up_waits_for_no_other_commands_modules() -> None:
    code = "import sys; from doesitrun import screen; screen.show_found; print('doesitrun.campaign' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
