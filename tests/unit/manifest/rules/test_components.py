"""The keys `component` and `generate`: their forms, and what does not fit them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Component, ModelSpec, load_project
from exporter.planning.plan import choose_route
from tests.unit.manifest.projects import make_project

ENTRY = """
format = 1
[models.net]
source = "torch.nn:ReLU"
exporter = "transformers"
component = { name = "decode", prompt = "nets.py:prompt" }
inputs = [
    { name = "input_ids", shape = ["batch", 1], dtype = "int64", fill = { randint = [0, 9] } },
    { name = "position_ids", shape = ["batch", 1], dtype = "int64", fill = { randint = [0, 9] } },
    { name = "past", shape = ["batch", 4] },
]
outputs = [{ name = "logits", shape = ["batch", 1, 9] }, { name = "present", shape = ["batch", 4] }]
opsets = 18
"""


def load(root: Path, text: str = "", entry: str = ENTRY) -> dict[str, ModelSpec]:
    files = {"manifests/nets.py": "def prompt(): ...\n", "manifests/net.toml": entry + text}
    return {spec.id: spec for spec in load_project(make_project(root, files)).models}


def test_a_component_has_its_own_exporter(tmp_path: Path) -> None:
    spec = load(tmp_path)["net"]
    assert spec.component == Component(name="decode", prompt="nets.py:prompt")
    route = choose_route(spec, 18)
    assert (route.exporter, route.title, route.is_export) == (
        "transformers",
        "transformers (export)",
        False,
    )
    assert route.reason == "the manifest selects the exporter of transformers"


def test_another_entry_is_another_component(tmp_path: Path) -> None:
    text = '[models.other]\nextends = "net"\ncomponent = { name = "prefill" }\n'
    assert load(tmp_path, text)["other"].component == Component(name="prefill")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'component = { name = "decode", prompt = "nets.py:prompt" }',
            "",
            "needs the key `generate`, .* or `component`",
        ),
        ('exporter = "transformers"', "", 'is for exporter = "transformers"; set it'),
        ("nets.py:prompt", "nets.py:prompts", "prompts"),
        ('name = "decode", ', "", "name"),
        ("opsets = 18", 'opsets = 18\ncapture = "export"', "does not apply to a `component`"),
        ("opsets = 18", 'opsets = 18\nparameters = "w{}"', "does not apply to a `component`"),
        ("opsets = 18", "opsets = 18\noptions.report = true", "does not apply to a `component`"),
        (
            "opsets = 18",
            'opsets = 18\noverrides = [{ opset = 18, exporter = "dynamo" }]',
            "does not apply to a `component`",
        ),
        ('"past", shape', '"past", at = "args[2]", shape', "does not apply to a `component`"),
        (
            "opsets = 18",
            'opsets = 18\nconstants = [{ at = "kwargs.use_cache", value = true }]',
            "does not apply to a `component`",
        ),
    ],
)
def test_what_does_not_fit_a_component(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ENTRY
    with pytest.raises(ExporterError, match=message):
        load(tmp_path, entry=ENTRY.replace(old, new, 1))


def test_the_removed_key_of_positions_has_a_message(tmp_path: Path) -> None:
    loop = 'rollout = { steps = 4, feeds = { logits = "input_ids" } }\n'
    assert load(tmp_path / "sound", loop)["net"].rollout
    with pytest.raises(ExporterError) as caught:
        load(tmp_path / "old", loop.replace(" } }", ' }, positions = ["position_ids"] }'))
    (problem,) = caught.value.problems
    assert "remove it: `position_ids` of a component continue" in problem.message


GENERATE = """
format = 1
[models.net]
source = "nets.py:prompt"
exporter = "transformers"
generate = { steps = 8 }
axes.total.max = 16
opsets = 18
[models.small]
extends = "net"
axes.total.max = 12
"""
INTERFACE = """
[decoder]
inputs = [
  { name = "input_ids", shape = ["batch", "length"], dtype = "int64", fill = { randint = [0, 9] } },
  { name = "position_ids", shape = ["batch", "length"], dtype = "int64", fill = "ones" },
  { name = "past_key_values.{layer}.key", shape = ["batch", "past"], repeat = { layer = 2 } },
  { name = "past_key_values.{layer}.value", shape = ["batch", "past"], repeat = { layer = 2 } },
]
outputs = [
  { name = "logits", shape = ["batch", "length", 9] },
  { name = "present.{layer}.key", shape = ["batch", "total"], repeat = { layer = 2 } },
  { name = "present.{layer}.value", shape = ["batch", "total"], repeat = { layer = 2 } },
]
axes = { past = { min = 0 }, total = { sum = ["past", "length"] } }
"""


def load_decoder(root: Path, entry: str, interface: str | None) -> dict[str, ModelSpec]:
    files = {"manifests/nets.py": "def prompt(): ...\n", "manifests/net.toml": entry}
    files |= {} if interface is None else {"manifests/net.interface.toml": interface}
    return {spec.id: spec for spec in load_project(make_project(root, files)).models}


def test_an_entry_has_its_interface_and_its_loop(tmp_path: Path) -> None:
    specs = load_decoder(tmp_path, f"{GENERATE}tokens = 0.9\n", INTERFACE)
    spec = specs["net"]
    assert spec.component == Component(name="decoder")
    assert (spec.find_axis("total").max, specs["small"].find_axis("total").max) == (16, 12)
    assert (spec.find_axis("past").min, spec.find_axis("total").rule is None) == (0, False)
    assert spec.rollout is not None
    assert spec.rollout.steps == 8
    assert spec.rollout.feeds["present.1.value"] == "past_key_values.1.value"
    assert (specs["small"].inputs, specs["small"].tokens) == (spec.inputs, 0.9)


def test_an_encoder_has_no_loop(tmp_path: Path) -> None:
    entry = GENERATE.replace("steps = 8", 'part = "encoder"')
    spec = load_decoder(tmp_path, entry, INTERFACE.replace("[decoder]", "[encoder]"))["net"]
    assert (spec.component, spec.rollout) == (Component(name="encoder"), None)


@pytest.mark.parametrize(
    ("entry", "interface", "message"),
    [
        (
            GENERATE,
            None,
            "net.interface.toml with the table .decoder.; run `exporter add nets.py:prompt`",
        ),
        (GENERATE, "inputs = []", "needs the table .decoder. or .encoder.; run `exporter add`"),
        (GENERATE, INTERFACE.replace("decoder", "encoder"), "with the table .decoder."),
        (GENERATE, INTERFACE.replace("input_ids", "ids"), "no input has the name 'input_ids'"),
        (
            GENERATE.replace("[models.small]", 'component = { name = "decode" }\n[models.small]'),
            INTERFACE,
            "has its own loop; remove `component` and `rollout`",
        ),
        (GENERATE.replace('exporter = "transformers"\n', ""), INTERFACE, "is for exporter"),
        (
            GENERATE.replace("steps = 8", 'part = "encoder"') + "tokens = 0.9\n",
            INTERFACE.replace("[decoder]", "[encoder]"),
            "no loop selects tokens; add `generate`",
        ),
        (GENERATE + "tokens = 1.5\n", INTERFACE, "at most 1"),
    ],
)
def test_what_does_not_fit_a_decoder(
    tmp_path: Path, entry: str, interface: str | None, message: str
) -> None:
    with pytest.raises(ExporterError) as caught:
        load_decoder(tmp_path, entry, interface)
    texts = [problem.message.replace('"', "'") for problem in caught.value.problems]
    assert any(re.search(message, text) for text in texts), texts
