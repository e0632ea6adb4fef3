"""The table of all ATen operators and the opsets at which each exporter can convert them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exporter.cache.fingerprint import read_tool_versions
from exporter.manifest.syntax.opsets import NATIVE_OPSETS
from exporter.tools.operators.child.decomposition import prove_decompositions
from exporter.tools.operators.protocol import OperatorRow, OperatorTable
from exporter.worker.torch_private.registries import (
    DynamoRegistry,
    Operator,
    is_decomposed,
    is_out_variant,
    list_aten_operators,
    read_dynamo_registry,
    read_torchscript_opsets,
    split_operator_name,
)

#: The table depends on these packages.
TOOLS = ("torch", "onnxscript")


@dataclass(slots=True)
class DynamoSupport:
    """The opsets at which dynamo supports one overload, by kind."""

    translated: list[int] = field(default_factory=list)
    decomposed: list[int] = field(default_factory=list)
    unproved: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[tuple[int, ...], ...]:
        """The same for overloads that share a row."""
        return tuple(self.translated), tuple(self.decomposed), tuple(self.unproved)


def build_operator_table() -> OperatorTable:
    """Read the registries of both exporters for all opsets; this takes some minutes."""
    torchscript, dynamo = (
        tuple(range(first, last + 1))
        for first, last in (NATIVE_OPSETS["torchscript"], NATIVE_OPSETS["dynamo"])
    )
    operators = list_aten_operators()
    plain = select_plain_operators(operators)
    registries = {opset: read_dynamo_registry(opset) for opset in dynamo}
    symbolic = read_torchscript_opsets(torchscript)
    versions = read_tool_versions()
    return OperatorTable(
        tools={name: versions[name] for name in TOOLS},
        torchscript=torchscript,
        dynamo=dynamo,
        rows=group_rows(classify_for_dynamo(plain, registries), symbolic),
        folded=len(operators) - len(plain),
    )


def select_plain_operators(operators: Iterable[Operator]) -> list[Operator]:
    """Return the operators that are neither in-place nor `out` variants of others."""
    operators = list(operators)
    packets = {split_operator_name(operator)[0] for operator in operators}

    def is_in_place(packet: str) -> bool:
        return packet.endswith("_") and not packet.endswith("__") and packet[:-1] in packets

    return [
        operator
        for operator in operators
        if not is_out_variant(operator) and not is_in_place(split_operator_name(operator)[0])
    ]


def classify_for_dynamo(
    operators: Iterable[Operator], registries: Mapping[int, DynamoRegistry]
) -> dict[str, dict[str, DynamoSupport]]:
    """Return the opsets of each overload, by operator and overload."""
    operators = list(operators)
    # Most opsets have the same translations as the one before.
    distinct = {registry.translated: registry for registry in registries.values()}
    indices = {translated: index for index, translated in enumerate(distinct)}
    unproved = [op for op in operators if any(is_decomposed(op, r) for r in distinct.values())]
    proofs = prove_decompositions(unproved, list(distinct.values()))
    support: dict[str, dict[str, DynamoSupport]] = defaultdict(lambda: defaultdict(DynamoSupport))
    for opset, registry in registries.items():
        for operator in operators:
            packet, overload = split_operator_name(operator)
            opsets = support[packet][overload]
            if str(operator) in registry.translated:
                opsets.translated.append(opset)
            elif is_decomposed(operator, registry):
                is_proved = proofs[str(operator)][indices[registry.translated]]
                (opsets.decomposed if is_proved else opsets.unproved).append(opset)
    return support


def group_rows(
    dynamo: Mapping[str, Mapping[str, DynamoSupport]], torchscript: Mapping[str, tuple[int, ...]]
) -> tuple[OperatorRow, ...]:
    """Return one row for all overloads of an operator with the same support."""
    rows = []
    for name in sorted({*dynamo, *torchscript}):
        groups: dict[tuple[tuple[int, ...], ...], list[str]] = defaultdict(list)
        for overload, support in dynamo.get(name, {"default": DynamoSupport()}).items():
            groups[support.key].append(overload)
        for (translated, decomposed, unproved), overloads in groups.items():
            row = OperatorRow(
                operator=name,
                overloads=tuple(sorted(overloads)),
                torchscript=torchscript.get(name, ()),
                translated=translated,
                decomposed=decomposed,
                unproved=unproved,
            )
            rows.append(row)
    return tuple(sorted(rows, key=lambda row: (row.operator, row.overloads)))
