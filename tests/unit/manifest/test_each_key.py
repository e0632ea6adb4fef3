"""Each key of an entry reaches its spec, and the part of the fingerprint of its effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.cache.fingerprint import compute_fingerprint
from exporter.manifest import ModelSpec, Output, Override, load_project
from exporter.manifest.schema.entry import Settings
from exporter.manifest.syntax.table import Table
from tests.unit.manifest.projects import make_project

ENTRY = {
    "source": '"net.py:Net"',
    "inputs": '[{ name = "x", shape = ["batch", 3] }]',
    "outputs": '[{ name = "y", shape = ["batch", 3] }]',
    "opsets": "18",
}
#: An entry that a chain can name.
PART = "".join(f"{key} = {value}\n" for key, value in ENTRY.items() if key != "outputs")
PART += 'outputs = [{ name = "y", shape = ["batch", 3] }, { name = "z", shape = ["batch", 3] }]\n'
#: Another value of each key by the part that it changes, and keys that it needs on both sides.
ENTRY_PART = {
    "source": '"net.py:Other"',
    "init": "{ depth = 3 }",
    "artifact": '"net.onnx"',
    "weights": '"net.safetensors"',
    "weights_sha256": f'"{"0" * 64}"\nweights = "net.safetensors"',
    "seed": "1",
    "mode": '"train"',
    "precision": '"float16"',
    "export_device": '"cuda"',
    "exporter": '"dynamo"',
    "capture": '"strict"',
    "passes": '["net.py:function"]',
    "metric": '{ call = "net.py:function", least = 0.5 }',
    "generate": '{ steps = 8 }\nexporter = "transformers"\n'
    "inputs = [{ name = 'input_ids', shape = ['b', 1], dtype = 'int64', fill = 'ones' }, "
    "{ name = 'past_key_values.0.key', shape = ['b', 4] }, "
    "{ name = 'past_key_values.0.value', shape = ['b', 4] }]\n"
    "outputs = [{ name = 'logits', shape = ['b', 1, 9] }, "
    "{ name = 'present.0.key', shape = ['b', 4] }, { name = 'present.0.value', shape = ['b', 4] }]",
    "rollout": "{ steps = 4, feeds = { y = 'x' } }",
    "callers": "[{ call = 'net.py:Net', reference = 'net.py:Net', samples = '*.py' }]",
    "metadata": '{ rate = "16000" }',
    "ir_version": "8",
    "inputs": '[{ name = "z", shape = ["batch", 3] }]',
    "outputs": '[{ name = "z", shape = ["batch", 3] }]',
    "axes": "{ batch = { max = 8 } }",
    "dynamic_axes": "{ x = [1] }",
    "parameters": '"weight_{}"',
    "constants": '[{ at = "kwargs.flag", value = true }]',
    "containers": '[{ at = "args[0]", type = "list" }]\n'
    'inputs = [{ name = "x", shape = ["batch", 3], at = "args[0][0]" }]',
    "inputs_from": '"net.py:function"',
    "chain": '["one", "two"]',
    "feeds": """{ "two.x" = "one.z" }\nchain = ["one", "two"]""",
    "cases": '[{ name = "ones", values = { x = "ones" } }]',
    "depends": '["net.py"]',
    "options": "{ verbose = true }",
    "custom_ops": '[{ name = "a.b.default", translation = "net.py:function" }]',
    "overrides": "[{ opset = 18, ir_version = 8 }]",
}
CHECK_PARTS = {
    "consumers": '["onnxruntime>=1.17"]',
    "tolerance": "{ atol = 1e-3 }",
    "thorough": "true",
    "measure": '["latency"]',
    "tokens": "0.5\nrollout = { steps = 4, feeds = { y = 'x' } }\n"
    "inputs = [{ name = 'x', shape = ['batch'], dtype = 'int64', fill = 'ones' }]",
}
#: A result depends on none of these.
NO_PART = {
    "description": '"a net"',
    "owner": '"vision"',
    "license": '"MIT"',
    "version": '"3"',
    "tags": '["small"]',
    "devices": '["cpu", "reference"]',
    "opsets": "[17, 18]",
    "expect": '[{ stage = "load", reason = "old" }]',
    "skip": '[{ opset = 18, reason = "old" }]',
    "timeout": '"1m"',
    "memory": '"8GiB"',
}
PARTS = {
    **{key: {"entry"} for key in ENTRY_PART},
    **{key: {"checks"} for key in CHECK_PARTS},
    **{key: set[str]() for key in NO_PART},
    "thorough": {"thorough"},
}


FEEDS = '{ "two.x" = "one.y" }'
#: The first value of keys that cannot be absent.
FIRST = {"generate": "{ steps = 4 }", "feeds": FEEDS}
#: The lines of a key that another one needs, and that nothing has without it.
NEEDED = {"chain": f"feeds = {FEEDS}"}


def load(root: Path, *lines: str) -> ModelSpec:
    """Return the spec of an entry with other lines for some keys."""
    keys = ENTRY | {line.partition(" =")[0]: line.partition("= ")[2] for line in lines if line}
    text = "\n".join(f"{key} = {value}" for key, value in keys.items())
    files = {
        "manifests/net.toml": f"format = 1\n[models.net]\n{text}\n",
        "manifests/parts.toml": f"format = 1\n[models.one]\n{PART}[models.two]\n{PART}",
        "manifests/net.interface.toml": "[decoder]\n",
        "manifests/net.py": "class Net: ...\nclass Other: ...\ndef function(*_): ...\n",
        "manifests/net.onnx": "",
        "manifests/net.safetensors": "",
    }
    return load_project(make_project(root, files)).models[0]


@pytest.mark.parametrize("key", Settings.model_fields)
def test_another_value_changes_the_spec_and_the_part_of_its_effect(
    key: str, tmp_path: Path
) -> None:
    values = {**ENTRY_PART, **CHECK_PARTS, **NO_PART}
    assert key in values, "add another value of the key to the table of its effect"
    value, *others = values[key].split("\n")
    before = load(tmp_path, *others, f"{key} = {FIRST[key]}" if key in FIRST else "")
    after = load(tmp_path, *others, f"{key} = {value}", NEEDED.get(key, ""))
    assert before.model_copy(update={"line": after.line}) != after, "the key is not read"
    first, second = (compute_fingerprint(spec) for spec in (before, after))
    changed = {part for part in {**first, **second} if first.get(part) != second.get(part)}
    assert changed == PARTS[key]


@pytest.mark.parametrize("table", [ModelSpec, Output, Override])
def test_the_meaning_of_a_key_is_known_before_its_class_is_built(table: type[Table]) -> None:
    # pydantic keeps no metadata of an annotation with a name that is defined later.
    assert table.__pydantic_fields_complete__
