"""`opset`: the file has the opset that was asked for, and an IR version within the cap.

Asked for 13, torch's dynamo exporter may write 18 and only log it: the file says what it is.
Operators of other domains than ONNX's are in the file only where the manifest names the domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnx import ModelProto

from exporter.checks.files.graph_walk import normalize_domain
from exporter.checks.files.ir_version import find_minimum_ir_version
from exporter.checks.protocol import CheckContext
from exporter.checks.structural.domains import find_foreign_operators, list_declared_domains
from exporter.checks.structural.run_structure import run_structure_check
from exporter.core.text_format import join_names
from exporter.manifest.syntax.message_format import format_key
from exporter.records.record import CheckResult

NAME = "opset"


def check_opset(subject: CheckContext) -> CheckResult:
    """Holds `opset_import` and `ir_version` of the file against the contract."""
    return run_structure_check(NAME, subject, _find)


def _find(subject: CheckContext, model: ModelProto) -> Iterator[str]:
    asked = subject.opset
    versions = sorted(
        {item.version for item in model.opset_import if not normalize_domain(item.domain)}
    )
    if not versions:
        yield f"the file imports no opset of ONNX's own, asked was {asked}"
    elif versions != [asked]:
        because = f": {'; '.join(subject.notes)}" if subject.notes else ""
        yield f"the file is opset {' and '.join(map(str, versions))}, asked was {asked}{because}"
    for function in model.functions:
        for item in function.opset_import:
            if not normalize_domain(item.domain) and item.version != asked:
                name = f"{function.domain}::{function.name}"
                yield f"the function {name} is opset {item.version}, asked was {asked}"
    yield from _custom_domains(subject, model)
    cap = subject.spec.ir_version
    if cap is not None and model.ir_version > cap:
        yield f"the file is IR version {model.ir_version}, the cap is {cap}"
    needed, what = find_minimum_ir_version(model)
    if model.ir_version < needed:
        yield f"the file says IR version {model.ir_version} and holds {what}, which need {needed}"


def _custom_domains(subject: CheckContext, model: ModelProto) -> Iterator[str]:
    """Every other domain is one that the manifest names, in the version that it asks for."""
    declared = list_declared_domains(subject.spec)
    for domain, names in find_foreign_operators(model).items():
        if domain not in declared:
            version = next((i.version for i in model.opset_import if i.domain == domain), 1)
            yield (
                f"the file uses the domain '{domain}' ({join_names(names)}), which the manifest does "
                f"not name: say options.custom_opsets = {{ {format_key((domain,))} = {version} }}"
            )
    wished = subject.spec.options.get("custom_opsets")
    versions: Mapping[str, object] = wished if isinstance(wished, Mapping) else {}
    places = [("the file", model.opset_import)]
    places += [(f"the function {f.domain}::{f.name}", f.opset_import) for f in model.functions]
    for place, imports in places:
        for item in imports:
            asked = versions.get(item.domain, item.version)
            if item.version != asked:
                yield f"{place} has version {item.version} of {item.domain}, asked was {asked}"
