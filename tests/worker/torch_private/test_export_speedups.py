"""The speed-ups of the dynamo exporter change no file."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from onnxscript._internal import ast_utils
from onnxscript.rewriter import _rewrite_rule
from torch import library
from torch._C import DispatchKey
from torch._export import utils as export_utils
from torch.export import decomp_utils, exported_program
from torch.onnx._internal.exporter import _core, _registration
from torch.onnx._internal.exporter._torchlib import _torchlib_registry
from torch.onnx._internal.fx.passes import type_promotion

from exporter.manifest import ModelSpec
from exporter.worker.torch_private import STACK_TRACE_KEY, export_speedups, guards
from exporter.worker.torch_private.export_speedups import (
    RegistryCache,
    preload_registry,
    speed_up_conversion,
)
from tests.worker.contracts import make_contract
from tests.worker.graphs import convert

Registry = _registration.ONNXRegistry
BLOCK = make_contract("NewOperators", "x [batch, 6, 8] -> y [batch, 6, 8]", opsets=(18,))


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_speedups, "_REGISTRY", RegistryCache())


def content(registry: Any) -> dict[Any, list[tuple[Any, ...]]]:
    return {
        target: [
            (
                each.onnx_function,
                each.fx_target,
                each.opset_introduced,
                each.is_complex,
                each.is_custom,
                each.device,
                str(each.signature),
            )
            for each in functions
        ]
        for target, functions in registry.functions.items()
    }


@pytest.mark.parametrize("opset", [18, 20, 23])
def test_cached_registry_equals_registry_of_torch(opset: int) -> None:
    read = Registry.from_torchlib(opset_version=opset)
    with speed_up_conversion():
        original = Registry.from_torchlib(opset_version=opset)
        again = Registry.from_torchlib(opset_version=opset)
    assert len(content(read)) > 400
    assert content(original) == content(read) == content(again)
    assert list(original.functions) == list(read.functions)
    assert original.opset_version == opset


def test_translation_of_one_model_does_not_affect_others() -> None:
    target = torch.ops.aten.relu.default
    with speed_up_conversion():
        first = Registry.from_torchlib(opset_version=20)
        before = content(first)
        first.register_op(target, lambda x: x)
        assert content(first) != before
        assert content(Registry.from_torchlib(opset_version=20)) == before
        assert content(Registry.from_torchlib(opset_version=18))[target.name()]


def test_registry_is_read_once_and_again_after_a_registration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads = []
    read = vars(Registry)["from_torchlib"].__func__

    def count_and_read(cls: Any, **options: Any) -> Any:
        reads.append(cls)
        return read(cls, **options)

    monkeypatch.setattr(Registry, "from_torchlib", classmethod(count_and_read))
    preload_registry()
    with speed_up_conversion():
        for opset in (18, 19, 20):
            Registry.from_torchlib(opset_version=opset)
        assert len(reads) == 1
        ours = _registration.OnnxDecompMeta(
            onnx_function=lambda x: x,
            fx_target=torch.ops.aten.relu.default,
            signature=None,
            opset_introduced=19,
            skip_signature_inference=True,
        )
        registered = [*_torchlib_registry.get_torchlib_ops(), ours]
        monkeypatch.setattr(_torchlib_registry, "get_torchlib_ops", lambda: registered)
        result = Registry.from_torchlib(opset_version=20).functions["aten::relu"]
        assert [each.onnx_function for each in result] == [ours.onnx_function]
        assert len(reads) == 2
        # An operator of a library that a model has loaded meanwhile.
        monkeypatch.setattr(export_speedups, "_has_operator", lambda name: True)
        Registry.from_torchlib(opset_version=20)
        assert len(reads) == 3


def test_no_source_is_parsed_for_the_domains(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("onnxscript.function_libs.torch_lib.ops")  # the import parses its own functions
    monkeypatch.delattr(ast_utils, "get_src_and_ast")
    assert export_speedups.RegistryCache().read(vars(Registry)["from_torchlib"].__func__)
    with pytest.raises(AttributeError):
        Registry.from_torchlib()


def test_missing_operators_are_detected() -> None:
    assert export_speedups._has_operator("aten::relu")
    assert export_speedups._has_operator("aten::add.Tensor")
    assert export_speedups._has_operator("math::ceil")
    assert not export_speedups._has_operator("nobody::has_this")


class Promoted(torch.nn.Module):
    """Types are promoted in the middle, and once in a branch."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        known = (x * 2.0).relu() + x
        halves = n / 2
        mixed = known + n
        branch = torch.cond(n.sum() > 3, lambda a, b: a + b, lambda a, b: a - b, (mixed, n))
        return torch.pow(branch, 2) + halves


class Found(torch.nn.Module):
    """A size that depends on values, and a promotion behind it."""

    def forward(self, x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x[x > 0] + n.sum()


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.nn.functional.layer_norm(x.relu(), [3]), n + n


def promoted(module: torch.nn.Module) -> list[tuple[str, str]]:
    """Every node of the program that the exporter translates, with what it gives."""
    inputs = (torch.randn(2, 3), torch.ones(2, 3, dtype=torch.int64))
    with torch.no_grad():
        program = torch.export.export(module, inputs)
    ready = _core._prepare_exported_program_for_export(
        program, registry=Registry.from_torchlib(opset_version=20)
    )
    return [
        (str(node.format_node()), f"{getattr(value, 'dtype', '')} {value}")
        for graph in ready.graph_module.modules()
        if isinstance(graph, torch.fx.GraphModule)
        for node in graph.graph.nodes
        for value in [node.meta.get("val")]
    ]


@pytest.mark.parametrize(
    ("module", "casts", "again"), [(Promoted(), 3, True), (Found(), 1, True), (Plain(), 0, False)]
)
def test_type_promotion_equals_that_of_a_full_run(
    module: torch.nn.Module, casts: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    public = promoted(module)
    ran = []
    run = torch.fx.Interpreter.call_function
    monkeypatch.setattr(
        type_promotion._TypePromotionInterpreter,
        "call_function",
        lambda self, target, *rest: ran.append(target) or run(self, target, *rest),
        raising=False,
    )
    with speed_up_conversion():
        original = promoted(module)
    assert original == public
    assert sum("convert_element_type" in node for node, _ in original) >= casts
    assert bool(ran) is again


@dataclass
class Rules:
    """The results of the rules of the optimizer, for each rule and node."""

    changes: int = 0
    """Changes by rules that ran."""
    missed: list[bool] = field(default_factory=list)
    """For each skipped rule, True if it would have matched."""


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    rules = Rules()
    tried: list[Any] = []
    rule, rule_set = _rewrite_rule.RewriteRule, _rewrite_rule.RewriteRuleSet
    try_rewrite, apply = rule.try_rewrite, rule_set._apply_to_graph_or_function

    def noting(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
        tried.append(node)
        return try_rewrite(self, model, graph, node, **options)

    def applied(self: Any, model: Any, graph: Any, **options: Any) -> int:
        choosing = rule.try_rewrite  # the replaced function, which may not call `noting`

        def try_rewrite(self: Any, model: Any, graph: Any, node: Any, **options: Any) -> Any:
            tried.clear()
            delta = choosing(self, model, graph, node, **options)
            rules.changes += delta is not None
            if not tried:
                missed = self._matcher.match(model, graph, node, remove_nodes=True)
                rules.missed.append(bool(missed))
            return delta

        with monkeypatch.context() as patch:
            patch.setattr(rule, "try_rewrite", try_rewrite)
            return apply(self, model, graph, **options)

    monkeypatch.setattr(rule, "try_rewrite", noting)
    monkeypatch.setattr(rule_set, "_apply_to_graph_or_function", applied)
    return rules


@pytest.mark.parametrize(
    ("spec", "changes"),
    [(BLOCK, 0), (BLOCK.model_copy(update={"source": "nets.py:RedundantSteps"}), 3)],
    ids=["NewOperators", "RedundantSteps"],
)
def test_skipped_rules_would_not_match(
    tmp_path: Path, rules: Rules, spec: ModelSpec, changes: int
) -> None:
    convert(spec, 18, tmp_path, dynamo=True)
    assert rules.changes >= changes
    assert len(rules.missed) > 500
    assert not any(rules.missed)


def test_nodes_keep_source_lines_and_namespace(tmp_path: Path) -> None:
    notes = [node.metadata_props for node in convert(BLOCK, 18, tmp_path, dynamo=True).graph]
    assert any("nets.py" in note[STACK_TRACE_KEY] for note in notes)
    assert all(note["namespace"] for note in notes)


def test_all_functions_are_restored() -> None:
    owners = (
        (Registry, "from_torchlib"),
        (type_promotion._TypePromotionInterpreter, "run_node"),
        (_core, "_set_node_metadata"),
        (_rewrite_rule.RewriteRule, "try_rewrite"),
    )
    before = [vars(owner)[name] for owner, name in owners]
    with ExitStack() as stack:
        stack.enter_context(pytest.raises(ValueError, match="inside"))
        stack.enter_context(speed_up_conversion())
        assert not any(
            vars(owner)[name] is each for (owner, name), each in zip(owners, before, strict=True)
        )
        raise ValueError("inside")
    assert [vars(owner)[name] for owner, name in owners] == before


def test_other_torch_version_is_not_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_TESTED", dict.fromkeys(guards._TESTED, ()))
    before = vars(Registry)["from_torchlib"]
    preload_registry()
    with speed_up_conversion():
        assert vars(Registry)["from_torchlib"] is before
    assert export_speedups._REGISTRY._sources is None


PATCHES = {
    "registry": (Registry, "from_torchlib"),
    "type_promotion": (type_promotion._TypePromotionInterpreter, "run_node"),
    "node_metadata": (_core, "_set_node_metadata"),
    "composite_operators": (decomp_utils, "_collect_all_valid_cia_ops"),
    "rewrite_rules": (_rewrite_rule.RewriteRule, "try_rewrite"),
}


def test_composite_operators_are_listed_once_with_those_of_the_user() -> None:
    usual = export_utils._collect_all_valid_cia_ops()
    with library._scoped_library("composite_of_test", "DEF") as operators:
        operators.define("twice(Tensor x) -> Tensor")
        operators.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        with (
            speed_up_conversion(),
            patch.object(
                torch._C,
                "_dispatch_get_registrations_for_dispatch_key",
                wraps=torch._C._dispatch_get_registrations_for_dispatch_key,
            ) as read,
        ):
            listed = decomp_utils._collect_all_valid_cia_ops()
        assert read.call_count == 1
        assert listed == export_utils._collect_all_valid_cia_ops()
        assert {str(operator) for operator in listed - usual} == {"composite_of_test.twice.default"}


def test_kernels_of_composite_operators_are_those_of_torch() -> None:
    table = dict.fromkeys(
        export_utils._collect_all_valid_cia_ops(), exported_program._special_op_to_preserve_cia
    )

    def list_kernels() -> dict[str, dict[str, str]]:
        with exported_program._override_composite_implicit_decomp(table):
            return {
                str(operator): {
                    str(key): str(getattr(kernel, "__code__", type(kernel)))
                    for key, kernel in kernels.items()
                }
                for operator in table
                if (kernels := operator.py_kernels)
            }

    usual = list_kernels()
    with speed_up_conversion():
        assert list_kernels() == usual
        operator = next(iter(table))
        for key, problem in ((DispatchKey.Python, AssertionError), ("CPU", AssertionError)):
            with pytest.raises(problem):
                operator.py_impl(key)(print)
        operator.py_impl(DispatchKey.IPU)(print)
        with pytest.raises(RuntimeError, match="override a python impl"):
            operator.py_impl(DispatchKey.IPU)(print)
        del operator.py_kernels[DispatchKey.IPU]
        operator._dispatch_cache.clear()
    assert len(usual) > 400


def list_patched_groups() -> set[str]:
    before = {group: vars(owner)[name] for group, (owner, name) in PATCHES.items()}
    with speed_up_conversion():
        return {
            group
            for group, (owner, name) in PATCHES.items()
            if vars(owner)[name] is not before[group]
        }


@pytest.mark.parametrize(
    ("package", "groups"),
    [
        ("torch", {"rewrite_rules"}),
        ("onnxscript", {"type_promotion", "node_metadata", "composite_operators"}),
    ],
)
def test_each_function_has_the_guard_of_its_own_package(
    package: str, groups: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(guards._TESTED, package, ())
    assert list_patched_groups() == groups


@pytest.mark.parametrize("group", PATCHES)
def test_each_group_can_be_switched_off(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_ENABLED", frozenset(PATCHES) - {group})
    assert list_patched_groups() == set(PATCHES) - {group}
