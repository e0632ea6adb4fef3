"""Only `worker/torch_private` uses private parts of torch and onnxscript."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "exporter"
PUBLIC = sorted(
    path
    for path in PACKAGE.rglob("*.py")
    if not path.is_relative_to(PACKAGE / "worker" / "torch_private")
)
LIBRARIES = ("torch", "onnxscript", "onnx_ir")
#: Functions that read or change an attribute by name.
ACCESSORS = {"getattr", "setattr", "delattr", "hasattr"}
#: Public attributes of named tuples.
NAMED_TUPLE = {"_asdict", "_fields", "_make", "_replace"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in NAMED_TUPLE


def is_private_module(name: str) -> bool:
    first, *others = name.split(".")
    return first in LIBRARIES and any(is_private(part) for part in others)


def list_private_uses(source: str) -> Iterator[str]:
    """Yield every private name of a library, and every private name of an unknown owner."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if is_private_module(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name for name in names if is_private_module(name))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Modules by name: `import_module`, `patch`.
            if is_private_module(node.value) and node.value.replace(".", "").isidentifier():
                yield node.value
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            # Own private attributes are accessed by `self` and `cls`; `os._exit` is documented.
            if ast.unparse(node) != "os._exit" and ast.unparse(node.value) not in {"self", "cls"}:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ACCESSORS:
            name = node.args[1]
            if isinstance(name, ast.Constant) and is_private(str(name.value)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = node.value
            is_namespace = isinstance(owner, ast.Call) and ast.unparse(owner.func) == "vars"
            is_namespace |= isinstance(owner, ast.Attribute) and owner.attr == "__dict__"
            if is_namespace and is_private(str(node.slice.value)):
                yield ast.unparse(node)


def test_modules_use_no_private_parts_of_libraries() -> None:
    assert not {
        str(path.relative_to(PACKAGE)): uses
        for path in PUBLIC
        if (uses := list(list_private_uses(path.read_text("utf-8"))))
    }


@pytest.mark.parametrize(
    "source",
    [
        "import torch._dynamo",
        "import torch.utils._pytree as pytree",
        "from torch.utils import _pytree",
        "from torch.jit._trace import TracerWarning",
        "from onnxscript.rewriter._matcher import SimplePatternMatcher",
        "import_module('torch.onnx._internal.exporter._core')",
        "operator._schema",
        "torch._C._jit_pass_inline(graph)",
        "getattr(tensor, '_version', 0)",
        "setattr(owner, '_optimize_graph', patched)",
        "vars(core)['_set_node_metadata']",
        "core.__dict__['_set_node_metadata']",
    ],
)
def test_search_finds_a_planted_use(source: str) -> None:
    assert list(list_private_uses(source))


@pytest.mark.parametrize(
    "source",
    ["self._spec", "import torch.onnx", "__version__", "module.__file__", "os._exit(0)", "'_name'"],
)
def test_search_accepts_public_and_own_names(source: str) -> None:
    assert list(list_private_uses(source)) == []
