"""Settings of the gate that a branch makes less strict."""

from __future__ import annotations

from exporter.gate.contract_changes import find_contract_changes
from exporter.manifest import Gate, GatePolicy, Manifest
from exporter.manifest.resolved.project import ModelPolicy
from tests.unit.factory import make_manifest, make_spec


def test_a_looser_setting_is_one_finding_at_its_line() -> None:
    specs = (make_spec(), make_spec("other"))

    def with_settings(gate: Gate) -> Manifest:
        manifest = make_manifest(*specs)
        return manifest.model_copy(
            update={"project": manifest.project.model_copy(update={"gate": gate})}
        )

    lines = {"": 4, "newly_red": 5, "models.o*": 8, "models.o*.fixed": 9}
    loose = Gate(
        policy=GatePolicy(newly_red="warn"),
        models=(ModelPolicy(models="o*", values={"fixed": "ignore"}),),
        lines=lines,
    )
    plain = with_settings(Gate(lines=lines))
    findings = {each.before: each for each in find_contract_changes(plain, with_settings(loose))}
    assert {
        text: str(each.setting.location) for text, each in findings.items() if each.setting
    } == {
        "gate.newly_red = block": "pyproject.toml:5",
        "gate.fixed = block": "pyproject.toml:9",
    }
    assert len(findings["gate.newly_red = block"].cells) == 4
    assert {cell.model for cell in findings["gate.fixed = block"].cells} == {"other"}
    # A removed key has the line of its table.
    strict = with_settings(Gate(policy=GatePolicy(file_grown="block")))
    (removed,) = find_contract_changes(strict, plain)
    assert removed.setting
    assert str(removed.setting.location) == "pyproject.toml:4"
