"""A plugin of mypy: `import_plugin("store")` has the type of the module that it returns.

Without it, a call from the core to a plugin would have the type Any, and a wrong argument would
show only in a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from mypy.nodes import MypyFile, StrExpr
from mypy.plugin import AttributeContext, FunctionContext, Plugin
from mypy.types import Instance, Type

from exporter.core import _PLUGINS

_CALL = re.compile(r'import_plugin\(\s*"(\w+)"(?:,\s*"(\w+)")?\s*\)')


def name_module(key: str, part: str = "") -> str:
    return ".".join(filter(None, ("exporter.plugins", _PLUGINS[key], part)))


class ModuleTypes(Plugin):
    """Types of the modules that the table of plugins names."""

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """Return the modules whose types a file of the package uses."""
        if not file.fullname.startswith("exporter."):
            return []
        calls = _CALL.findall(Path(file.path).read_text("utf-8"))
        return [(10, name_module(*call), -1) for call in sorted(set(calls))]

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return the hook of `import_plugin`."""
        return _find_type if fullname == "exporter.core.import_plugin" else None

    def get_attribute_hook(self, fullname: str) -> Callable[[AttributeContext], Type] | None:
        """Return the hook of the attributes of a module: mypy knows no module as a value."""
        owner, _, name = fullname.rpartition(".")
        return partial(_find_attribute, name) if owner == "types.ModuleType" else None


def _find_type(context: FunctionContext) -> Type:
    values = [each for argument in context.args for each in argument]
    if not all(isinstance(value, StrExpr) for value in values):
        return context.default_return_type  # the key is known in a run only
    checker: Any = context.api
    module = checker.modules[name_module(*(value.value for value in values))]
    return checker.expr_checker.module_type(module)


def _find_attribute(name: str, context: AttributeContext) -> Type:
    module = context.type
    if not isinstance(module, Instance) or module.extra_attrs is None:
        return context.default_attr_type
    if name not in module.extra_attrs.attrs:
        context.api.fail(f"{module.extra_attrs.mod_name} has no {name}", context.context)
        return context.default_attr_type
    return module.extra_attrs.attrs[name]


def plugin(_: str) -> type[Plugin]:
    """Return the class for mypy."""
    return ModuleTypes
