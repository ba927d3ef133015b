"""The structure that ARCHITECTURE.md promises, read from the imports and definitions of every module."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {name_of(path): ast.parse(path.read_text()) for path in sorted((SOURCE / "fairway").rglob("*.py"))}
PACKAGES = {name_of(path) for path in (SOURCE / "fairway").rglob("__init__.py")}


def imported(module: str) -> Iterator[str]:
    """The modules of ours that a module imports, wherever it does: at its top, in a function, for types alone."""
    for node in ast.walk(TREES[module]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in TREES)
        elif isinstance(node, ast.ImportFrom):
            above = module.split(".") if module in PACKAGES else module.split(".")[:-1]
            start = above[: len(above) - node.level + 1] if node.level else []
            source = ".".join([*start, *filter(None, [node.module])])
            found = {f"{source}.{alias.name}" for alias in node.names} & TREES.keys()
            yield from found or {source} & TREES.keys()


RULE = re.compile(r"^\| .+ \| \[`([\w.]+)`\]\(\.\./\.\./src/([\w/]+)\.py\) \|$", re.MULTILINE)
RULES = RULE.findall((SOURCE.parent / "docs" / "concepts" / "README.md").read_text())
FACED = tuple(f"fairway.{name}" for name in ("engine", "referee", "policies", "outlook", "offline", "sim"))
"""Packages whose `__init__` says all that they offer."""
NAMING = tuple(f"fairway.{name}" for name in ("api", "kube", "controllers", "embedded", "node", "web"))
"""Packages whose `__init__` names the modules that others import: a command waits for all that it loads."""
VALUES = {f"fairway.engine.{name}" for name in ("model", "plan", "snapshot", "resources", "labels")}


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


def offered(package: str) -> dict[str, str]:
    """Names in a package's `__init__`, and the module that defines each."""
    nodes = [node for node in TREES[package].body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"{package}.{node.module}" for node in nodes for alias in node.names}


def is_offered(node: ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names if f"{node.module}.{alias.name}" in TREES]
    return node.module in FACED and offered(node.module).keys() >= set(names)


def defined(module: str) -> Iterator[str]:
    for node in TREES[module].body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))


def test_no_module_imports_one_that_imports_it() -> None:
    graph = {module: set(imported(module)) - {module} for module in TREES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(reversed(error.args[1]))}")


def test_the_engine_needs_no_imports_for_types_alone() -> None:
    engine = {module: tree for module, tree in TREES.items() if module.startswith("fairway.engine")}
    assert [module for module, tree in engine.items() if "TYPE_CHECKING" in ast.dump(tree)] == []


def test_nothing_is_imported_from_deeper_than_what_a_package_offers() -> None:
    deep = [
        (module, node.module) for module, tree in TREES.items() for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and package_of(node.module) in FACED
        and package_of(module) != package_of(node.module) and not is_offered(node)
    ]  # fmt: skip
    assert deep == []


@pytest.mark.parametrize("package", NAMING)
def test_others_import_only_the_modules_that_a_package_names(package: str) -> None:
    modules = {target.split(".")[2] for module in TREES if package_of(module) != package
               for target in imported(module) if target.startswith(f"{package}.")}  # fmt: skip
    assert sorted(modules) == sorted(import_module(package).__all__)


def test_the_referee_shares_only_values_with_what_decides() -> None:
    names = offered("fairway.engine")
    taken = {
        names.get(alias.name, "fairway.engine.model")
        for module in TREES if module.startswith("fairway.referee") for node in ast.walk(TREES[module])
        if isinstance(node, ast.ImportFrom) and node.module == "fairway.engine" for alias in node.names
    }  # fmt: skip
    assert taken <= VALUES


@pytest.mark.parametrize("package", FACED)
def test_a_package_defines_no_name_twice(package: str) -> None:
    modules = [module for module in TREES if package_of(module) == package]
    names = Counter(name for module in modules for name in defined(module) if not name.startswith("_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_the_function_named_for_each_rule_exists_and_says_what_it_does() -> None:
    assert len(RULES) >= 70
    silent = [(module, name) for name, module in RULES if not docstring(module.replace("/", "."), name.split("."))]
    assert silent == []


NAMED = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def docstring(module: str, path: list[str]) -> str:
    """Of a function or method; "" where there is none of that name, or it has none."""
    found: list[ast.stmt] = TREES[module].body
    for name in path:
        nodes = [one for one in found if isinstance(one, NAMED) and one.name == name]
        if not nodes:
            return ""
        found = nodes[0].body
    return ast.get_docstring(nodes[0]) or ""
