"""The table of all ATen operators and the opsets in which each exporter can convert them.

In: the ranges of opsets. Out: an `OperatorCounts`.
"""

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

#: What the table is read from.
TOOLS = ("torch", "onnxscript")


@dataclass(slots=True)
class _Ways:
    """The opsets of one overload under dynamo."""

    translated: list[int] = field(default_factory=list)
    decomposed: list[int] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self.translated), tuple(self.decomposed), tuple(self.apart)


def build_operator_table() -> OperatorTable:
    """Asks both exporters for every opset that they make; takes some minutes."""
    torchscript, dynamo = (_opsets(name) for name in ("torchscript", "dynamo"))
    everything = list_aten_operators()
    plain = select_plain_operators(everything)
    registries = {opset: read_dynamo_registry(opset) for opset in dynamo}
    symbolic = read_torchscript_opsets(torchscript)
    rows = group_rows(classify_for_dynamo(plain, registries), symbolic)
    tools = read_tool_versions()
    return OperatorTable(
        tools={name: tools[name] for name in TOOLS},
        torchscript=torchscript,
        dynamo=dynamo,
        rows=rows,
        folded=len(everything) - len(plain),
    )


def select_plain_operators(everything: Iterable[Operator]) -> list[Operator]:
    """Those that neither write to an `out` argument nor are another one in place."""
    everything = list(everything)
    packets = {split_operator_name(operator)[0] for operator in everything}
    return [
        operator
        for operator in everything
        if not is_out_variant(operator) and not _is_in_place(split_operator_name(operator)[0], packets)
    ]


def classify_for_dynamo(
    operators: Iterable[Operator], registries: Mapping[int, DynamoRegistry]
) -> dict[str, dict[str, _Ways]]:
    """Operator -> overload -> its opsets."""
    operators = list(operators)
    # Most opsets have the same translations as the one before.
    distinct = {registry.translated: registry for registry in registries.values()}
    places = {translated: index for index, translated in enumerate(distinct)}
    unsure = [op for op in operators if any(is_decomposed(op, r) for r in distinct.values())]
    ends_well = prove_decompositions(unsure, list(distinct.values()))
    ways: dict[str, dict[str, _Ways]] = defaultdict(lambda: defaultdict(_Ways))
    for opset, registry in registries.items():
        for operator in operators:
            packet, overload = split_operator_name(operator)
            way = ways[packet][overload]
            if str(operator) in registry.translated:
                way.translated.append(opset)
            elif is_decomposed(operator, registry):
                is_proved = ends_well[str(operator)][places[registry.translated]]
                (way.decomposed if is_proved else way.apart).append(opset)
    return ways


def group_rows(
    dynamo: Mapping[str, Mapping[str, _Ways]], torchscript: Mapping[str, tuple[int, ...]]
) -> tuple[OperatorRow, ...]:
    """One row for the overloads of an operator that are alike."""
    rows = []
    for name in sorted({*dynamo, *torchscript}):
        alike: dict[tuple[tuple[int, ...], ...], list[str]] = defaultdict(list)
        for overload, way in dynamo.get(name, {"default": _Ways()}).items():
            alike[way.key].append(overload)
        for (translated, decomposed, apart), overloads in alike.items():
            row = OperatorRow(
                operator=name,
                overloads=tuple(sorted(overloads)),
                torchscript=torchscript.get(name, ()),
                translated=translated,
                decomposed=decomposed,
                apart=apart,
            )
            rows.append(row)
    return tuple(sorted(rows, key=lambda row: (row.operator, row.overloads)))


def _is_in_place(packet: str, packets: set[str]) -> bool:
    return packet.endswith("_") and not packet.endswith("__") and packet[:-1] in packets


def _opsets(exporter: str) -> tuple[int, ...]:
    first, last = NATIVE_OPSETS[exporter]
    return tuple(range(first, last + 1))
