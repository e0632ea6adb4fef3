"""The key `generate`: its interface and its loop, and what does not fit it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import ModelSpec, load_project
from exporter.manifest.resolved.keys import Generate
from exporter.planning.plan import choose_route
from tests.unit.manifest.projects import make_project

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


OTHER_KEY = "does not apply to `generate`, which transformers exports; remove it"


def load_decoder(root: Path, entry: str, interface: str | None) -> dict[str, ModelSpec]:
    files = {"manifests/nets.py": "def prompt(): ...\n", "manifests/net.toml": entry}
    files |= {} if interface is None else {"manifests/net.interface.toml": interface}
    return {spec.id: spec for spec in load_project(make_project(root, files)).models}


def test_an_entry_has_its_interface_and_its_loop(tmp_path: Path) -> None:
    specs = load_decoder(tmp_path, f"{GENERATE}tokens = 0.9\n", INTERFACE)
    spec = specs["net"]
    route = choose_route(spec, 18)
    assert (route.exporter, route.title) == ("transformers", "transformers (export)")
    assert route.reason == "the manifest selects the exporter of transformers"
    assert not route.is_export
    assert (spec.find_axis("total").max, specs["small"].find_axis("total").max) == (16, 12)
    assert (spec.find_axis("past").min, spec.find_axis("total").rule is None) == (0, False)
    assert spec.rollout is not None
    assert spec.rollout.steps == 8
    assert spec.rollout.feeds["present.1.value"] == "past_key_values.1.value"
    assert (specs["small"].inputs, specs["small"].tokens) == (spec.inputs, 0.9)


def test_an_encoder_has_no_loop(tmp_path: Path) -> None:
    entry = GENERATE.replace("steps = 8", 'part = "encoder"')
    spec = load_decoder(tmp_path, entry, INTERFACE.replace("[decoder]", "[encoder]"))["net"]
    assert (spec.generate, spec.rollout) == (Generate(part="encoder"), None)


IDS = '{ name = "input_ids", shape = ["n"], dtype = "int64", fill = { randint = [0, 9] } }'
VECTORS = '{ name = "inputs_embeds", shape = ["n", 4] }'
PICTURES = '{ name = "pixel_values", shape = ["pictures", 3] }'
LOGITS = '{ name = "logits", shape = ["n", 9] }'
PARTS = {
    "vision": (PICTURES, '{ name = "image_features", shape = ["pictures", 4] }'),
    "embedding": (f'{IDS}, {{ name = "image_features", shape = ["features", 4] }}', VECTORS),
    "decoder": (VECTORS, LOGITS),
    "whole": (f"{PICTURES}, {IDS}", LOGITS),
}
WHOLE = """
[models.whole]
chain = ["vision", "embedding", "decoder"]
generate = { part = "whole", steps = 4 }

[models.whole.feeds]
"embedding.image_features" = "vision.image_features"
"decoder.inputs_embeds" = "embedding.inputs_embeds"
"""


def load_whole(root: Path, whole: str = WHOLE) -> dict[str, ModelSpec]:
    text = 'format = 1\n[defaults]\nsource = "nets.py:prompt"\nopsets = 18\n'
    files = {"manifests/nets.py": "def prompt(): ...\n"}
    for part, (inputs, outputs) in PARTS.items():
        table = f"[{part}]\ninputs = [{inputs}]\noutputs = [{outputs}]\n"
        files[f"manifests/{part}.interface.toml"] = table
        if part != "whole":
            text += (
                f'[models.{part}]\nexporter = "transformers"\ngenerate = {{ part = "{part}" }}\n'
            )
    files["manifests/net.toml"] = text + whole
    return {spec.id: spec for spec in load_project(make_project(root, files)).models}


def test_the_chain_of_a_model_with_pictures_has_the_loop(tmp_path: Path) -> None:
    specs = load_whole(tmp_path)
    loop = specs.pop("whole").rollout
    assert loop is not None
    assert (loop.steps, loop.feeds) == (4, {"logits": "input_ids"})
    assert [spec.rollout for spec in specs.values()] == [None] * 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('part = "whole", ', "", "does not apply to a chain"),
        ("steps = 4 }", 'steps = 4 }\nexporter = "transformers"', "does not apply to a chain"),
        (WHOLE.partition("generate")[0], "[models.whole]\n", "the other parts; add `chain`"),
        ('"vision", "embedding", ', '"embedding", "vision", ', "gets an output of a later link"),
    ],
)
def test_what_does_not_fit_the_whole(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in WHOLE
    with pytest.raises(ExporterError) as caught:
        load_whole(tmp_path, WHOLE.replace(before, after))
    texts = [problem.message for problem in caught.value.problems]
    assert any(message in text for text in texts), texts


@pytest.mark.parametrize(
    ("entry", "interface", "message"),
    [
        (
            GENERATE,
            None,
            "net.interface.toml with the table .decoder.; run `exporter add nets.py:prompt`",
        ),
        (
            GENERATE,
            "inputs = []",
            "needs one of the tables .decoder., .encoder., .*; run `exporter add`",
        ),
        (GENERATE, INTERFACE.replace("decoder", "encoder"), "with the table .decoder."),
        (GENERATE, INTERFACE.replace("input_ids", "ids"), "no input has the name 'input_ids'"),
        (
            GENERATE.replace("generate = { steps = 8 }\n", ""),
            None,
            "needs the key `generate`, such as `generate = { steps = 32 }`",
        ),
        *(
            (GENERATE.replace("opsets = 18", f"opsets = 18\n{key}"), INTERFACE, OTHER_KEY)
            for key in (
                'capture = "export"',
                'parameters = "w{}"',
                "options.report = true",
                'overrides = [{ opset = 18, exporter = "dynamo" }]',
                'constants = [{ at = "kwargs.use_cache", value = true }]',
                'rollout = { steps = 4, feeds = { logits = "input_ids" } }',
            )
        ),
        (GENERATE, INTERFACE.replace('"ones" }', '"ones", at = "args[2]" }'), OTHER_KEY),
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
