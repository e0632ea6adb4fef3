"""A branch cannot weaken its own gate: relaxations, and outcomes that it accepts itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from exporter.api.revision_comparison import Approvals, ProjectState, compare_with_revision
from exporter.gate.accepted_contract import (
    DEFINING_KEYS,
    HARMLESS_KEYS,
    RESOLVED_KEYS,
)
from exporter.gate.approvals import CodeOwners, Reviewers
from exporter.gate.baseline_comparison import accept_some
from exporter.gate.finding import GateFinding
from exporter.gate.revision_promises import OF_DEVICES, find_contract_changes
from exporter.manifest import (
    Action,
    Axis,
    Bound,
    Caller,
    Case,
    Comparator,
    Constant,
    Container,
    CustomOp,
    Device,
    Expectation,
    Fill,
    FindingKind,
    Gate,
    GatePolicy,
    Input,
    InputsFrom,
    Manifest,
    ModelSpec,
    Output,
    Override,
    ParameterNames,
    Preprocess,
    Project,
    Rollout,
    Skip,
    Tolerance,
)
from exporter.manifest.resolved.call import SizeRule
from exporter.manifest.resolved.keys import Generate, Metric
from exporter.manifest.resolved.model import Link
from exporter.manifest.resolved.policy import FINDINGS, LIMITS, ModelPolicy
from exporter.manifest.syntax.table import read_keys
from exporter.records.baseline import Baseline, extract_outcomes, make_baseline, parse_cell
from exporter.records.record import Record
from exporter.virtual_environments import EnvironmentDefinition
from tests.unit.factory import make_manifest, make_record, make_run, make_spec

CELLS = (parse_cell("alexnet/17/cpu"), parse_cell("alexnet/18/cpu"))
PLAIN = Output(name="logits", shape=("batch", 1000))
MASKED = PLAIN.model_copy(update={"masked_by": "mask"})
HAND = Tolerance(atol=1e-5, rtol=1e-4)
BATCH = Axis(name="batch", example=3)
FOUND = Axis(name="found", example=None)
DOUBLED = SizeRule(kind="product", operands=("batch", 2))
FORESEEN = Expectation(stage="convert", match="stft", reason="lacks it")
FOR_OLD = FORESEEN.model_copy(update={"torch": "<2.14"})


OTHER = PLAIN.model_copy(update={"name": "other"})


def compare_by(**fields: Any) -> dict[str, Any]:
    """Return the outputs of an entry with a comparator in place of the tolerance."""
    return {"outputs": (PLAIN.model_copy(update={"compare": Comparator(**fields)}),)}


def find_changes(before: dict[str, Any], after: dict[str, Any]) -> list[GateFinding]:
    sides = (make_manifest(make_spec(**fields)) for fields in (before, after))
    return list(find_contract_changes(*sides))


def make_input(name: str, **fill: Any) -> Input:
    fills = Fill(**{"kind": "normal", **fill})
    return Input(name=name, shape=("batch", 3), at=f"kwargs.{name}", fill=fills)


IMAGE, MASK = make_input("image"), make_input("mask")
COLOURED, GRAY = (Preprocess(layout="NC", range=(0, high)) for high in (1, 255))
PREPARED = IMAGE.model_copy(update={"preprocess": COLOURED, "meaning": "a picture"})
LABELLED = PLAIN.model_copy(update={"labels": ("a", "b"), "meaning": "logits"})
TALL, WIDE = (IMAGE.model_copy(update={"shape": ("batch", size)}) for size in (4, 6))
TALL_AND_WIDE = (TALL, WIDE.model_copy(update={"name": "wide"}))
NAMED = tuple(each.model_copy(update={"shape": ("batch", "width")}) for each in TALL_AND_WIDE)


def make_axis(name: str = "width", **fields: Any) -> Axis:
    return Axis(**{"name": name, "example": 3, **fields})


REST = SizeRule(kind="difference", operands=(9, "batch"))
SUM = SizeRule(kind="sum", operands=("batch", "other"))


def find_axis(**fields: Any) -> dict[str, Any]:
    """Return the axes of an entry with the axis `found`, which only outputs have."""
    return {"axes": (BATCH, make_axis("found", **fields))}


#: Fields of an entry before, and weaker ones.
METRIC = Metric(call="net.py:accuracy", least=0.9)
CALLER = Caller(call="infer.py:run", reference="train.py:run", samples="*.png", rtol=1e-3)
LOOP = Rollout(steps=8, feeds={"y": "x"})
ENCODER = Link(id="encoder", inputs={"x": "x"}, outputs={"h": "encoder.h"})
DECODER = Link(id="decoder", inputs={"h": "encoder.h"}, outputs={"y": "y"})
SCHEDULED = LOOP.model_copy(update={"constants": {"t": "a.py:f"}})
LOOSER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"weights": "a.pt", "weights_sha256": "0" * 64}, {"weights": "a.pt"}),
    ({}, {"tolerance": Tolerance(noise=20)}),
    # An explicit factor also accepts noise above 1e-3 of the scale.
    ({}, {"tolerance": Tolerance(noise=8)}),
    ({}, {"tolerance": HAND}),
    ({}, {"tolerance": Tolerance(outside=0.01)}),
    ({"tolerance": HAND}, {}),
    ({}, {"tolerance": Tolerance(steps=1)}),
    ({"tolerance": Tolerance(steps=1)}, {}),
    ({"tolerance": Tolerance(steps=1)}, {"tolerance": Tolerance(steps=2)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-4, rtol=1e-4)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-5, rtol=1e-3)}),
    ({}, {"tolerance": Tolerance(by_dtype={"float32": Bound(noise=9)})}),
    ({}, {"tolerance": Tolerance(by_device={"cpu": Bound(noise=9)})}),
    ({}, {"overrides": (Override(opsets=(17, 18), tolerance=Tolerance(noise=9)),)}),
    ({"metric": METRIC}, {}),
    ({"callers": (CALLER,)}, {}),
    ({"callers": (CALLER,)}, {"callers": (CALLER.model_copy(update={"rtol": 0.1}),)}),
    ({"callers": (CALLER,)}, {"callers": (CALLER.model_copy(update={"samples": "a.png"}),)}),
    ({"metric": METRIC}, {"metric": METRIC.model_copy(update={"least": 0.8})}),
    ({"metadata": {"rate": "1"}}, {}),
    ({"metadata": {"rate": "1"}}, {"metadata": {"rate": "2", "unit": "Hz"}}),
    ({"inputs": (PREPARED,)}, {"inputs": (IMAGE,)}),
    ({"inputs": (PREPARED,)}, {"inputs": (PREPARED.model_copy(update={"preprocess": GRAY}),)}),
    ({"outputs": (LABELLED,)}, {"outputs": (PLAIN,)}),
    ({"outputs": (LABELLED,)}, {"outputs": (PLAIN.model_copy(update={"labels": ("b", "a")}),)}),
    ({}, {"expect": (FORESEEN,)}),
    ({"expect": (FOR_OLD,)}, {"expect": (FORESEEN,)}),
    ({"expect": (FOR_OLD,)}, {"expect": (FOR_OLD.model_copy(update={"torch": "<2.15"}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"match": ""}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"stage": None}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"stage": "load"}),)}),
    ({}, {"skip": (Skip(reason="slow"),)}),
    ({"thorough": True}, {}),
    ({"ir_version": 8}, {}),
    ({"consumers": ("onnxruntime>=1.9",)}, {}),
    ({"consumers": ("onnxruntime>=1.9",)}, {"consumers": ("onnxruntime>=1.17",)}),
    ({"ir_version": 8}, {"ir_version": 9}),
    ({"outputs": (PLAIN,)}, {"outputs": (MASKED,)}),
    ({"outputs": (MASKED,)}, {"outputs": (MASKED.model_copy(update={"masked_by": "other"}),)}),
    ({}, {"axes": ()}),
    ({}, {"axes": (Axis(name="batch", example=3, min=2),)}),
    ({}, {"axes": (Axis(name="batch", example=3, max=64),)}),
    ({}, {"axes": (Axis(name="batch", example=4, multiple_of=2),)}),
    ({}, {"axes": (Axis(name="batch", example=3, rule=DOUBLED),)}),
    (find_axis(rule=DOUBLED), find_axis(example=None)),
    # The limits of an axis that only outputs have limit the sizes of inputs if it has a rule.
    (find_axis(example=None), find_axis(rule=DOUBLED, max=64)),
    (find_axis(example=None), find_axis(rule=DOUBLED, min=4)),
    (find_axis(example=None), find_axis(rule=DOUBLED, multiple_of=4)),
    (find_axis(example=None), find_axis(rule=REST)),
    (find_axis(example=None), find_axis(rule=SUM)),
    (find_axis(example=None), find_axis(example=None, max=9)),
    # A size of the revision is none of the new axis, or two sizes are one axis now.
    ({"inputs": (TALL,)}, {"inputs": NAMED[:1], "axes": (BATCH, make_axis(max=3))}),
    ({"inputs": (TALL,)}, {"inputs": NAMED[:1], "axes": (BATCH, make_axis(min=5))}),
    ({"inputs": (TALL,)}, {"inputs": NAMED[:1], "axes": (BATCH, make_axis(multiple_of=3))}),
    ({"inputs": (TALL,)}, {"inputs": NAMED[:1], "axes": (BATCH,)}),
    ({"inputs": (TALL,)}, {"inputs": NAMED[:1], "axes": (BATCH, make_axis(rule=DOUBLED))}),
    ({"inputs": TALL_AND_WIDE}, {"inputs": NAMED, "axes": (BATCH, make_axis())}),
    ({"inputs": (TALL,)}, {"inputs": (TALL.model_copy(update={"shape": ("batch", "batch")}),)}),
    ({"inputs": NAMED, "axes": (BATCH, make_axis())}, {"inputs": TALL_AND_WIDE}),
    ({"cases": (Case(name="long"),)}, {}),
    ({"cases": (Case(name="long", axes={"batch": 90}),)}, {"cases": (Case(name="long"),)}),
    ({"measure": ("latency",)}, {}),
    ({"rollout": LOOP}, {}),
    ({}, {"tokens": 0.9}),
    ({"tokens": 0.9}, {"tokens": 0.8}),
    ({"rollout": LOOP}, {"rollout": LOOP.model_copy(update={"steps": 4})}),
    ({"rollout": LOOP}, {"rollout": LOOP.model_copy(update={"steps": 9, "feeds": {"y": "c"}})}),
    ({"rollout": SCHEDULED}, {"rollout": LOOP}),
    ({"rollout": LOOP}, {"rollout": SCHEDULED}),
    ({"rollout": LOOP.model_copy(update={"loop": "a.py:f"})}, {"rollout": LOOP}),
    ({"measure": ("latency", "load")}, {"measure": ("latency",)}),
    ({"parameters": ParameterNames(template="w{}")}, {}),
    (
        {"parameters": ParameterNames(template="w{}")},
        {"parameters": ParameterNames(patterns={"*.bias": "w{}"})},
    ),
    ({"inputs": (make_input("image"),)}, {"inputs": (make_input("image", kind="zeros"),)}),
    (
        {"inputs": (make_input("image", kind="uniform", low=-1.0),)},
        {"inputs": (make_input("image", kind="uniform"),)},
    ),
    ({"inputs": (make_input("image"), make_input("mask"))}, {"inputs": (make_input("image"),)}),
    ({"inputs_from": InputsFrom(function="nets.py:inputs")}, {}),
    ({"devices": ("cpu",)}, {"devices": ("cuda",)}),
    ({"precision": "float16"}, {}),
    ({}, {"precision": "float16"}),
    ({}, {"mode": "train"}),
    ({"constants": (Constant(at="kwargs.x", value=True),)}, {}),
    (
        {"constants": (Constant(at="kwargs.x", value=True),)},
        {"constants": (Constant(at="kwargs.x", value=1),)},
    ),
    ({"inputs": (IMAGE, MASK)}, {"inputs": (MASK, IMAGE)}),
    ({"inputs": (IMAGE,)}, {"inputs": (IMAGE.model_copy(update={"dtype": "float16"}),)}),
    ({"inputs": (IMAGE,)}, {"inputs": (IMAGE.model_copy(update={"shape": ("batch", 4)}),)}),
    ({"inputs": (IMAGE,)}, {"inputs": (IMAGE.model_copy(update={"shape": ("batch",)}),)}),
    ({"inputs": (IMAGE,)}, {"inputs": (IMAGE.model_copy(update={"at": "args[1]"}),)}),
    ({"inputs": (IMAGE,)}, {"inputs": (IMAGE.model_copy(update={"scalar": True}),)}),
    ({"outputs": (PLAIN,)}, {"outputs": (PLAIN.model_copy(update={"shape": ("batch", "n")}),)}),
    ({"outputs": (PLAIN,)}, {"outputs": (PLAIN.model_copy(update={"shape": ("batch", 999)}),)}),
    ({"outputs": (PLAIN,)}, {"outputs": (PLAIN.model_copy(update={"dtype": "float16"}),)}),
    ({"outputs": (PLAIN,)}, {"outputs": (PLAIN.model_copy(update={"kind": "sequence"}),)}),
    # A comparator replaces the tolerance, and two kinds are not comparable.
    ({"outputs": (PLAIN,)}, compare_by(cosine=0.999)),
    (compare_by(cosine=0.999), {"outputs": (PLAIN,)}),
    (compare_by(cosine=0.99), compare_by(cosine=0.98)),
    (compare_by(cosine=0.99), compare_by(sqnr=40.0)),
    (compare_by(top_k=5), compare_by(top_k=10)),
    (compare_by(call="a.py:f"), compare_by(cosine=0.999)),
    ({"outputs": (PLAIN, OTHER)}, {"outputs": (OTHER, PLAIN)}),
    ({"outputs": (PLAIN,)}, {"outputs": (PLAIN, OTHER)}),
    ({"chain": (ENCODER, DECODER)}, {"chain": (DECODER,)}),
    ({"chain": (ENCODER,)}, {}),
]


def test_only_the_items_that_changed_are_shown() -> None:
    other = DECODER.model_copy(update={"inputs": {"h": "x"}})
    (change, *_) = find_changes({"chain": (ENCODER, DECODER)}, {"chain": (ENCODER, other)})
    before, after = change.before, change.after
    assert before == "chain: id = decoder, inputs = h = encoder.h, outputs = y = y"
    assert after == "chain: id = decoder, inputs = h = x, outputs = y = y"


@pytest.mark.parametrize(("before", "after"), LOOSER)
def test_a_weaker_promise_is_a_finding_of_each_cell(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    findings = find_changes(before, after)
    assert {each.cell for each in findings} == set(CELLS)
    assert all(each.kind is FindingKind.RELAXED and each.is_blocking for each in findings)
    assert all(each.before != each.after for each in findings)


#: Fields of an entry before, and equal or stricter ones.
STRICTER: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tolerance": Tolerance(noise=20)}, {}),
    ({"tolerance": Tolerance(noise=20)}, {"tolerance": Tolerance(noise=8)}),
    ({"tolerance": Tolerance(steps=2)}, {"tolerance": Tolerance(steps=1)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-6, rtol=0)}),
    ({"tolerance": HAND}, {"tolerance": Tolerance(atol=1e-6, rtol=1e-4)}),
    ({}, {"tolerance": Tolerance(by_device={"cuda": Bound(noise=90)})}),
    ({"expect": (FORESEEN,)}, {}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"reason": "other"}),)}),
    ({"expect": (FORESEEN,)}, {"expect": (FORESEEN.model_copy(update={"torch": "<2.14"}),)}),
    ({"skip": (Skip(reason="slow"),)}, {"skip": (Skip(reason="very slow"),)}),
    ({"skip": (Skip(reason="slow"),)}, {}),
    ({}, {"thorough": True}),
    ({}, {"ir_version": 8}),
    ({}, {"consumers": ("onnxruntime>=1.17",)}),
    ({"consumers": ("onnxruntime>=1.17",)}, {"consumers": ("onnxruntime>=1.9",)}),
    ({"axes": (Axis(name="batch", example=3, min=2, max=8),)}, {}),
    (find_axis(example=None), find_axis(rule=DOUBLED)),
    ({"outputs": (MASKED,)}, {"outputs": (PLAIN,)}),
    ({"outputs": (MASKED,)}, {"outputs": (MASKED,)}),
    ({}, {"cases": (Case(name="long"),)}),
    ({}, {"rollout": LOOP}),
    ({}, {"metric": METRIC}),
    ({}, {"callers": (CALLER,)}),
    ({}, {"chain": (ENCODER, DECODER)}),
    ({"metadata": {"rate": "1"}}, {"metadata": {"rate": "1", "unit": "Hz"}}),
    ({"inputs": (IMAGE,)}, {"inputs": (PREPARED,)}),
    ({"outputs": (PLAIN,)}, {"outputs": (LABELLED,)}),
    ({"callers": (CALLER,)}, {"callers": (CALLER.model_copy(update={"rtol": 1e-4}), CALLER)}),
    ({"metric": METRIC}, {"metric": METRIC.model_copy(update={"least": 0.95})}),
    ({"tokens": 0.9}, {"tokens": 0.95}),
    ({"tokens": 0.9}, {}),
    ({"rollout": LOOP}, {"rollout": LOOP.model_copy(update={"steps": 9})}),
    ({"rollout": LOOP}, {"rollout": LOOP.model_copy(update={"loop": "a.py:f"})}),
    ({}, {"parameters": ParameterNames(template="w{}"), "measure": ("memory",)}),
    (
        {"inputs": (TALL,)},
        {"inputs": NAMED[:1], "axes": (BATCH, make_axis(min=2, max=4, multiple_of=2))},
    ),
    (
        {"inputs": (TALL.model_copy(update={"shape": (2, 4)}),), "axes": ()},
        {"inputs": NAMED[:1], "axes": (BATCH, make_axis(rule=DOUBLED))},
    ),
    # The rule of an axis without a limit of its own keeps all sizes.
    (
        {"inputs": NAMED, "axes": (BATCH, make_axis(rule=DOUBLED))},
        {"inputs": NAMED, "axes": (BATCH, make_axis())},
    ),
    (
        {"axes": (Axis(name="batch", example=3, max=8), FOUND)},
        {"axes": (Axis(name="batch", example=3, max=8), make_axis("found", rule=DOUBLED, max=16))},
    ),
    (find_axis(rule=DOUBLED, max=16), find_axis(rule=DOUBLED)),
    ({"outputs": (PLAIN.model_copy(update={"shape": ("batch", "n")}),)}, {"outputs": (PLAIN,)}),
    (compare_by(cosine=0.99), compare_by(cosine=0.999)),
    (compare_by(sqnr=40.0), compare_by(sqnr=40.0)),
    ({"weights": "a.pt"}, {"weights": "a.pt", "weights_sha256": "0" * 64}),
    ({}, {"opsets": (16, 17, 18), "description": "a net", "timeout": 1.0}),
]


@pytest.mark.parametrize(("before", "after"), STRICTER)
def test_a_promise_that_is_as_strict_is_no_finding(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert find_changes(before, after) == []


@pytest.mark.parametrize("table", [LOOSER, STRICTER])
def test_both_tables_have_each_key_with_a_direction(table: list[Any]) -> None:
    """A function that returns the opposite would accept each weaker promise."""
    keys = {name for name, key in read_keys(ModelSpec).items() if key.is_as_strict}
    assert keys <= {name for row in table for fields in row for name in fields}


def test_only_these_keys_of_an_entry_are_not_compared_as_they_are() -> None:
    groups = (HARMLESS_KEYS, RESOLVED_KEYS, DEFINING_KEYS)
    assert sum(map(len, groups)) == len(frozenset().union(*groups))
    assert ModelSpec.model_fields.keys() >= frozenset().union(*groups)


#: Two different values of each key that defines the model.
REDEFINED: dict[str, tuple[object, object]] = {
    "source": ("net.py:Net", "net.py:Other"),
    "artifact": ("a.onnx", "b.onnx"),
    "weights": ("a.pt", "b.pt"),
    "weights_sha256": ("0" * 64, "1" * 64),
    "init": ({"depth": 3}, {"depth": 4}),
    "seed": (0, 1),
    "export_device": ("cpu", "cuda"),
    "options": ({}, {"optimize": False}),
    "custom_ops": ((), (CustomOp(name="aten::stft", symbolic="a.py:f"),)),
    "generate": (Generate(), Generate(part="encoder")),
    "containers": ((), (Container(at="args[0]", type="list"),)),
    "depends": (("data/*",), ()),
}
#: Values that Python compares as equal.
EQUAL = {"options": ({"verbose": True}, {"verbose": 1}), "init": ({"depth": 1}, {"depth": 1.0})}


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [(key, *values) for table in (REDEFINED, EQUAL) for key, values in table.items()],
)
def test_another_model_is_a_warning_with_the_key_and_both_values(
    key: str, before: object, after: object
) -> None:
    assert find_changes({key: before}, {key: before}) == []
    findings = find_changes({key: before}, {key: after})
    assert {each.cell for each in findings} == set(CELLS)
    assert {each.kind for each in findings} == {FindingKind.REDEFINED}
    assert all(each.action == "warn" for each in findings)
    assert all(each.before.startswith(f"{key}: ") for each in findings)
    assert all(each.before != each.after for each in findings)


def test_a_data_file_with_another_content_is_a_warning() -> None:
    image = make_input("image", kind="file", file="image.npy")
    manifest = make_manifest(make_spec(inputs=(image,)))
    (path,) = manifest.models[0].data_files
    find = partial(find_contract_changes, manifest, manifest)
    key = (FindingKind.REDEFINED, f"content of {path}")
    one, two = ({manifest.models[0].id: {key: digit * 64}} for digit in "12")
    assert find(one, one) == ()
    assert find({}, one) == ()
    findings = find(one, two)
    assert {each.kind for each in findings} == {FindingKind.REDEFINED}
    assert findings[0].before == f"content of {path}: 111111111111"


def test_initial_weights_in_place_of_a_file_that_the_revision_has_are_weaker() -> None:
    """A branch that removes and ignores its weights would pass with `--weights initial`."""
    accepted = make_manifest(make_spec(weights="a.pt"))
    branch = make_manifest(make_spec(weights="a.pt", lacks_weights=True))
    key = (FindingKind.REDEFINED, "weights file manifests/a.pt")
    hashes = {accepted.models[0].id: {key: "1" * 64}}
    assert find_contract_changes(accepted, branch) == ()
    findings = find_contract_changes(accepted, branch, hashes)
    assert {each.kind for each in findings} == {FindingKind.RELAXED}
    assert findings[0].after == "weights file manifests/a.pt: missing"


def test_a_message_has_the_key_and_both_values() -> None:
    (one, _) = find_changes({"ir_version": 8}, {"ir_version": 9})
    assert (one.before, one.after) == ("ir_version: 8", "ir_version: 9")
    (one, _) = find_changes({}, {"tolerance": Tolerance(noise=20)})
    assert one.before.endswith(": noise = 8 by default")
    assert one.after.endswith(": noise = 20")


def test_a_removed_cell_or_model_is_a_finding() -> None:
    (removed,) = find_changes({}, {"opsets": (18,)})
    assert (str(removed.cell), removed.after) == ("alexnet/17/cpu", "no longer promised")
    both = find_contract_changes(make_manifest(make_spec()), make_manifest(make_spec("other")))
    assert {each.cell for each in both} == set(CELLS)


def with_gate(spec: ModelSpec, **settings: Any) -> Manifest:
    limits = {FINDINGS[key]: limit for key, limit in settings.pop("limits", {}).items()}
    actions = {FINDINGS[key]: action for key, action in settings.items()}
    gate = Gate(policy=GatePolicy(actions=actions, limits=limits))
    return set_gate(gate, spec)


def set_gate(gate: Gate, *specs: ModelSpec) -> Manifest:
    manifest = make_manifest(*specs)
    project = manifest.project.model_copy(update={"gate": gate})
    return manifest.model_copy(update={"project": project})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"newly_red": "warn"}, 'gate.warn = ["newly_red"]'),
        ({"file_grown": "ignore"}, 'gate.ignore = ["file_grown"]'),
        *(({"limits": {each.key: 4.5}}, f"gate.limits.{each.key} = 4.5") for each in LIMITS),
        ({"accepted_here": "warn"}, 'gate.warn = ["accepted_here"]'),
    ],
)
def test_only_a_looser_policy_is_a_finding(settings: dict[str, Any], text: str) -> None:
    plain, loose = make_manifest(make_spec()), with_gate(make_spec(), **settings)
    assert {each.after for each in find_contract_changes(plain, loose)} == {text}
    assert find_contract_changes(loose, plain) == ()


def test_an_approval_is_weaker_than_no_acceptance() -> None:
    strict, plain = with_gate(make_spec(), accepted_here="block"), make_manifest(make_spec())
    (finding,) = find_contract_changes(strict, plain)
    assert (finding.before, finding.after) == (
        'gate.block = ["accepted_here"]',
        "a loss passes with an approval",
    )
    assert find_contract_changes(plain, strict) == ()


def test_a_less_strict_device_is_a_finding() -> None:
    def manifest(**fields: Any) -> Manifest:
        device = Device(name="cpu", runtime="onnxruntime", **fields)
        project = Project(root="/project", devices=(device,))
        return Manifest(project=project, models=(make_spec(),))

    strict = manifest(providers=("A", "B"), strict=True)
    assert len(find_contract_changes(strict, manifest(providers=("A", "B")))) == 2
    assert find_contract_changes(manifest(providers=("A", "B")), strict) == ()
    assert len(find_contract_changes(manifest(providers=("A",)), manifest(providers=("B",)))) == 2


def test_other_packages_of_a_toolchain_are_a_finding() -> None:
    def manifest(release: str) -> Manifest:
        old = EnvironmentDefinition(requirements=(f"onnxscript=={release}",))
        device = Device(name="cpu", runtime="onnxruntime")
        project = Project(root="/project", devices=(device,), job_environments={"old": old})
        return Manifest(project=project, models=(make_spec(devices=("cpu@old",)),))

    findings = find_contract_changes(manifest("0.6.2"), manifest("0.7.1"))
    assert findings
    assert all("onnxscript==0.7.1" in str(each.after) for each in findings)
    assert find_contract_changes(manifest("0.6.2"), manifest("0.6.2")) == ()


def test_each_setting_of_devices_is_one_of_a_project() -> None:
    assert Project.model_fields.keys() >= OF_DEVICES


def test_the_policy_of_the_revision_applies_to_relaxations() -> None:
    loose = make_spec(thorough=False)
    for action in ("warn", "ignore"):
        then = with_gate(make_spec(thorough=True), relaxed=action)
        findings = find_contract_changes(then, make_manifest(loose))
        assert [each.action for each in findings] == ([action] * 2 if action == "warn" else [])


# --- the branch's own baseline --------------------------------------------------------------------


def compare(
    before: list[Record],
    now: list[Record],
    accepted: Baseline | None = None,
    accepted_here: str = "block",
) -> list[GateFinding]:
    manifest = with_gate(make_spec(), accepted_here=accepted_here)
    run = make_run(*now)
    then = ProjectState(manifest=manifest, baseline=make_baseline(make_run(*before)))
    current = ProjectState(manifest=manifest, baseline=accepted or then.baseline)
    return list(compare_with_revision(then, current, run, CELLS))


GREEN = [make_record(cell) for cell in CELLS]
RED = [make_record(CELLS[0]), make_record(CELLS[1], "fail", message="off by 3")]


def test_the_baseline_of_the_branch_hides_no_regression() -> None:
    (finding,) = compare(GREEN, RED, make_baseline(make_run(*RED)))
    assert (finding.kind, finding.cell, finding.is_blocking) == (
        FindingKind.NEWLY_RED,
        CELLS[1],
        True,
    )
    assert compare(GREEN, GREEN) == []


@pytest.mark.parametrize(
    ("before", "accepted", "after"),
    [
        (GREEN, make_baseline(make_run(*RED)), "outcome in the baseline: fail at parity"),
        (GREEN, make_baseline(make_run(GREEN[0])), "outcome in the baseline: none"),
        (
            [GREEN[0], make_record(CELLS[1], "xfail", check="axes")],
            make_baseline(make_run(GREEN[0], make_record(CELLS[1], "fail", check="axes"))),
            "outcome in the baseline: fail at parity (axes)",
        ),
        (GREEN, make_baseline(make_run(*GREEN)), ""),
        (RED, make_baseline(make_run(*RED)), ""),
    ],
)
def test_the_baseline_of_the_branch_prepares_no_later_loss(
    before: list[Record], accepted: Baseline, after: str
) -> None:
    """After the merge, it is the accepted state: the loss itself would be as before."""
    findings = compare(before, before, accepted)
    assert [(each.kind, each.cell, each.before) for each in findings] == (
        [(FindingKind.CONTRACT, CELLS[1], after)] if after else []
    )


def test_an_improvement_that_the_branch_accepts_is_no_finding() -> None:
    (finding,) = compare(RED, GREEN)
    assert finding.kind is FindingKind.FIXED
    assert compare(RED, GREEN, make_baseline(make_run(*GREEN))) == []


@pytest.mark.parametrize(("policy", "blocks"), [("block", [True]), ("warn", [False])])
def test_the_policy_of_the_revision_applies_to_reasons(policy: str, blocks: list[bool]) -> None:
    before = make_baseline(make_run(*GREEN))
    accepted = accept_some(
        before, extract_outcomes(make_run(*RED)), {CELLS[1]: "known, see 12"}, {}
    )
    findings = compare(GREEN, RED, accepted, policy)
    assert [each.is_blocking for each in findings] == blocks
    assert findings[0].message == "accepted here: known, see 12 (off by 3)"
    # The accepted outcome differs from the result.
    error = [RED[0], make_record(CELLS[1], "error")]
    assert [each.is_blocking for each in compare(GREEN, error, accepted, "warn")] == [True]
    # The branch's baseline contains no reason.
    assert [
        each.is_blocking for each in compare(GREEN, RED, make_baseline(make_run(*RED)), "warn")
    ] == [True]


APPROVED = Approvals(reviewers=Reviewers(approved_by=("ann",)))


@pytest.mark.parametrize(
    ("actions", "approvals", "is_blocking"),
    [
        ({}, APPROVED, False),
        ({}, Approvals(), True),
        ({"accepted_here": "block"}, APPROVED, True),
        ({"accepted_here": "warn"}, Approvals(), False),
    ],
)
def test_a_loss_with_a_reason_passes_with_an_approval(
    actions: dict[str, str], approvals: Approvals, is_blocking: bool
) -> None:
    before = make_baseline(make_run(*GREEN))
    then = ProjectState(manifest=with_gate(make_spec(), **actions), baseline=before)
    for reason in ("known, see 12", ""):
        outcomes = extract_outcomes(make_run(*RED))
        now = accept_some(before, outcomes, {CELLS[1]: reason}, {})
        branch = ProjectState(manifest=then.manifest, baseline=now)
        (finding,) = compare_with_revision(then, branch, make_run(*RED), CELLS, approvals)
        assert finding.is_blocking is (is_blocking or not reason)
        assert ("approved by @ann" in finding.message) is (
            bool(reason) and not actions and approvals is APPROVED
        )


def test_the_strictest_policy_counts_for_a_setting_of_several_models() -> None:
    """An approval or a reason for a model that may accept is none for another one."""
    specs = (make_spec("lax"), make_spec("strict"))
    strict = ModelPolicy(models="strict", actions={FindingKind.ACCEPTED_HERE: "block"})
    actions: dict[FindingKind, Action] = {FindingKind.ACCEPTED_HERE: "warn"}
    before, after = (
        set_gate(Gate(policy=GatePolicy(actions=each), models=(strict,)), *specs)
        for each in (actions, {**actions, FindingKind.NEWLY_RED: "warn"})
    )
    cells = [parse_cell(f"{spec.id}/{opset}/cpu") for spec in specs for opset in spec.opsets]
    run = make_run(*(make_record(cell) for cell in cells))
    accepted = make_baseline(run)
    reasons = dict.fromkeys(cells, "why")
    now = accept_some(accepted, extract_outcomes(run), reasons, {})
    then = ProjectState(manifest=before, baseline=accepted)
    branch = ProjectState(manifest=after, baseline=now)
    findings = compare_with_revision(then, branch, run, cells, APPROVED)
    (setting,) = (each for each in findings if each.setting)
    assert setting.is_blocking


@pytest.mark.parametrize("now", [RED, GREEN[:1]], ids=["red", "missing"])
def test_the_reason_for_a_removed_cell_accepts_no_outcome(now: list[Record]) -> None:
    """The manifest promises the cell, and only the file of the baseline lacks it."""
    before = make_baseline(make_run(*GREEN))
    edited = accept_some(before, extract_outcomes(make_run(GREEN[0])), {CELLS[1]: "history"}, {})
    then = ProjectState(manifest=with_gate(make_spec(), accepted_here="warn"), baseline=before)
    branch = ProjectState(manifest=then.manifest, baseline=edited)
    (finding, *_) = compare_with_revision(then, branch, make_run(*now), CELLS, APPROVED)
    assert (finding.cell, finding.is_blocking) == (CELLS[1], True)


def test_a_reason_of_the_revision_does_not_remove_a_cell() -> None:
    """The cell came back at the revision, and its old reason stayed in the file."""
    before = make_baseline(make_run(*GREEN))
    old = accept_some(before, extract_outcomes(make_run(GREEN[1])), {CELLS[0]: "history"}, {})
    base = before.models["alexnet"].model_copy(update={"dropped": old.dropped})
    then = ProjectState(
        manifest=with_gate(make_spec(), accepted_here="warn"),
        baseline=Baseline(models={"alexnet": base}),
    )
    branch = ProjectState(manifest=make_manifest(make_spec(opsets=(18,))), baseline=old)
    (removed,) = compare_with_revision(then, branch, make_run(GREEN[1]), [CELLS[1]])
    assert removed.is_blocking


def test_an_older_reason_does_not_accept_a_relaxation() -> None:
    old = accept_some(
        make_baseline(make_run(*GREEN)),
        extract_outcomes(make_run(*GREEN)),
        dict.fromkeys(CELLS, "why"),
        {},
    )
    then = ProjectState(manifest=with_gate(make_spec(), accepted_here="warn"), baseline=old)
    loose = ProjectState(
        manifest=make_manifest(make_spec(skip=(Skip(reason="slow"),))), baseline=old
    )
    findings = compare_with_revision(then, loose, make_run(*GREEN), CELLS)
    assert {(each.kind, each.is_blocking) for each in findings} == {(FindingKind.RELAXED, True)}


def test_a_removed_cell_can_have_a_reason() -> None:
    before = make_baseline(make_run(*GREEN))
    remaining = extract_outcomes(make_run(GREEN[1]))
    accepted = accept_some(before, remaining, {CELLS[0]: "opset 17 is history"}, {})
    assert accepted.dropped == {CELLS[0]: "opset 17 is history"}
    then = ProjectState(manifest=with_gate(make_spec(), accepted_here="warn"), baseline=before)
    current = ProjectState(manifest=make_manifest(make_spec(opsets=(18,))), baseline=accepted)
    findings = compare_with_revision(then, current, make_run(GREEN[1]), [CELLS[1]])
    # There is one finding: the cell has no relaxation and no lowest opset too.
    (removed,) = findings
    assert removed.kind is FindingKind.REMOVED
    assert (removed.is_blocking, "opset 17 is history" in removed.message) == (False, True)


def test_a_loss_of_a_renamed_model_needs_the_owner_of_its_former_file() -> None:
    owners = CodeOwners("/reports/baseline/ @ann\n/reports/baseline/safety.json @bob\n")

    def approve(*names: str, **fields: Any) -> Approvals:
        return Approvals(reviewers=Reviewers(approved_by=names, owners=owners), **fields)

    renamed = {"former_ids": {"alexnet": "safety"}}
    assert approve("ann", **renamed).find(CELLS) == approve("bob", **renamed).find(CELLS) == ""
    assert approve("ann", "bob", **renamed).find(CELLS) == "@ann and @bob"
    assert approve("ann", "bob").find(CELLS) == "@ann"
    assert approve().list_files(["alexnet"]) == ["reports/baseline/alexnet.json"]


def test_a_looser_setting_is_one_finding_at_its_line() -> None:
    specs = (make_spec(), make_spec("other"))
    lines = {"": 4, "newly_red": 5, "models.o*": 8, "models.o*.fixed": 9}
    loose = Gate(
        policy=GatePolicy(actions={FindingKind.NEWLY_RED: "warn"}),
        models=(ModelPolicy(models="o*", actions={FindingKind.FIXED: "ignore"}),),
        lines=lines,
    )
    plain = set_gate(Gate(lines=lines), *specs)
    findings = {each.before: each for each in find_contract_changes(plain, set_gate(loose, *specs))}
    assert {
        text: str(each.setting.location) for text, each in findings.items() if each.setting
    } == {
        'gate.block = ["newly_red"]': "pyproject.toml:5",
        'gate.block = ["fixed"]': "pyproject.toml:9",
    }
    assert len(findings['gate.block = ["newly_red"]'].cells) == 4
    assert {cell.model for cell in findings['gate.block = ["fixed"]'].cells} == {"other"}
    # A removed key has the line of its table.
    strict = set_gate(Gate(policy=GatePolicy(actions={FindingKind.FILE_GROWN: "block"})), *specs)
    (removed,) = find_contract_changes(strict, plain)
    assert removed.setting
    assert str(removed.setting.location) == "pyproject.toml:4"
