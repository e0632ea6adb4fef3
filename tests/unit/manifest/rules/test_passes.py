"""The keys `passes`, `metric` and `rollout`: their forms, and values that do not fit the entry."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.cache.fingerprint import compute_fingerprint
from exporter.checks import RUNTIME_CHECKS
from exporter.core.errors import ExporterError
from exporter.manifest import FilePass, Metric, ModelSpec, Rollout, load_project
from exporter.manifest.resolved.model import Override
from tests.unit.manifest.projects import make_project

ENTRY = """
format = 1
[models.net]
source = "torch.nn:ReLU"
inputs = [
    { name = "token", shape = ["batch"], dtype = "int64", fill = { randint = [0, 9] } },
    { name = "past.{n}", shape = ["batch", 4], at = "args[1][{n}]", repeat = { n = 2 } },
]
outputs = [
    { name = "logits", shape = ["batch", 9] },
    { name = "present.{layer}", shape = ["batch", 4], repeat = { layer = 2 } },
    { name = "count", shape = ["batch"], dtype = "int64" },
]
opsets = 18
"""


def load(root: Path, text: str) -> dict[str, ModelSpec]:
    code = "def slim(source, target): ...\n"
    files = {"manifests/passes.py": code, "manifests/net.toml": ENTRY + text}
    return {spec.id: spec for spec in load_project(make_project(root, files)).models}


def test_passes_with_and_without_arguments_make_a_variant(tmp_path: Path) -> None:
    text = """
[models.small]
extends = "net"
passes = ["passes.py:slim", { call = "passes.py:slim", level = 2 }]
[models.other]
extends = "small"
"""
    specs = load(tmp_path, text)
    calls = (
        FilePass(call="passes.py:slim"),
        FilePass(call="passes.py:slim", arguments={"level": 2}),
    )
    assert (specs["small"].passes, specs["small"].parent) == (calls, "net")
    assert (specs["other"].passes, specs["other"].parent) == (calls, "")
    assert (specs["net"].passes, specs["net"].parent) == ((), "")


def test_the_passes_and_not_the_parent_are_a_part_of_the_fingerprint(tmp_path: Path) -> None:
    spec = load(tmp_path, "")["net"]
    parts = [
        compute_fingerprint(spec.model_copy(update=update))["entry"]
        for update in ({}, {"parent": "a"}, {"passes": (FilePass(call="passes.py:slim"),)})
    ]
    assert parts[0] == parts[1] != parts[2]


def test_a_metric_and_a_rollout_are_resolved(tmp_path: Path) -> None:
    text = """
metric = { call = "passes.py:slim", least = 0.8 }
rollout = { steps = 4, feeds = { "present.{layer}" = "past.{layer}", logits = "token" } }
"""
    spec = load(tmp_path, text)["net"]
    assert spec.metric == Metric(call="passes.py:slim", least=0.8)
    feeds = {"present.0": "past.0", "present.1": "past.1", "logits": "token"}
    assert spec.rollout == Rollout(steps=4, feeds=feeds)


#: Keys whose plugin judges them, or makes the file that ships.
OF_PLUGINS = {
    "passes": '["passes.py:slim"]',
    "metric": '{ call = "passes.py:slim", least = 0.8 }',
    "rollout": '{ steps = 4, feeds = { "present.{layer}" = "past.{layer}" }, '
    'constants = { token = "passes.py:slim" }, loop = "passes.py:slim" }',
    "tokens": "0.5\nrollout = { steps = 4, feeds = { logits = 'token' } }",
}
#: The files of a project with the lines of a key at a level, and the lines of the entry.
LEVELS = {
    "entry": lambda lines: ({}, ENTRY + lines),
    "file": lambda lines: ({}, ENTRY.replace("[models.net]", f"[defaults]\n{lines}[models.net]")),
    "project": lambda lines: (
        {"pyproject.toml": f"[tool.exporter.defaults]\n{lines}"},
        ENTRY,
    ),
    "parent": lambda lines: ({}, f"{ENTRY}{lines}[models.child]\nextends = 'net'\n"),
}


def load_at(root: Path, key: str, level: str) -> ModelSpec:
    files, entry = LEVELS[level](f"{key} = {OF_PLUGINS[key]}\n")
    function = "passes.py" if level != "project" else "manifests/passes.py"
    files = {name: text.replace("passes.py", function) for name, text in files.items()}
    code = {"manifests/passes.py": "def slim(source, target): ...\n", "manifests/net.toml": entry}
    return load_project(make_project(root, {**code, **files})).models[-1]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("key", OF_PLUGINS)
def test_a_key_of_a_plugin_has_its_effect_at_each_level(
    key: str, level: str, tmp_path: Path
) -> None:
    spec = load_at(tmp_path, key, level)
    subject: Any = SimpleNamespace(spec=spec)
    checks = [check for check in RUNTIME_CHECKS if check.name in ("metric", "rollout")]
    applied = {check.name for check in checks if check.applies(subject)}
    expected = {"passes": set[str](), "metric": {"metric"}}.get(key, {"rollout"})
    assert applied == expected
    if key == "rollout":  # the plugin has resolved the layers
        assert spec.rollout is not None
        assert {"present.0", "present.1"} <= spec.rollout.feeds.keys()
        # Relative to the manifest of the entry, at each level.
        assert (spec.rollout.constants, spec.rollout.loop) == (
            {"token": "passes.py:slim"},
            "passes.py:slim",
        )
    assert spec.tokens == (0.5 if key == "tokens" else None)


def test_no_override_can_have_a_key_of_a_plugin(tmp_path: Path) -> None:
    assert {*OF_PLUGINS, "generate"}.isdisjoint(Override.model_fields)
    for key in OF_PLUGINS:
        with pytest.raises(ExporterError, match="is not valid here"):
            load(tmp_path, f"overrides = [{{ opset = 18, {key} = 1 }}]\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('passes = ["passes.py:trim"]', "passes.py does not define 'trim'"),
        ('passes = ["pass.py:slim"]', "manifests/pass.py' does not exist"),
        ("passes = [3]", "expected 'file.py:function' or a table with `call`"),
        ("passes = [{ level = 2 }]", "needs the key 'call'"),
        ('passes = [{ call = "passes.py:slim", target = "x" }]', "a parameter that the tool sets"),
        ('metric = { call = "passes.py:slim" }', "promises nothing; add `least` or `drop`"),
        ('metric = { call = "passes.py:trim", drop = 1 }', "passes.py does not define 'trim'"),
        ('metric = { call = "passes.py:slim", drop = -1 }', "expected at least 0"),
        ('rollout = { steps = 1, feeds = { logits = "token" } }', "expected at least 2"),
        ('rollout = { steps = 4, feeds = { logit = "token" } }', "did you mean 'logits'?"),
        ('rollout = { steps = 4, feeds = { logits = "tokens" } }', "did you mean 'token'?"),
        (
            'rollout = { steps = 4, feeds = { "present.{l}" = "cache.{l}" } }',
            "no layer has both 'present.{l}' and 'cache.{l}'",
        ),
        (
            'rollout = { steps = 4, feeds = { count = "past.0" } }',
            "'count' is int64, and 'past.0' is float32",
        ),
        (
            'rollout = { steps = 4, feeds = { "present.0" = "past.0", "present.1" = "past.0" } }',
            "'past.0' gets an output already",
        ),
        (
            (
                'rollout = { steps = 4, feeds = { logits = "token" }, constants = '
                '{ tokens = "passes.py:slim" } }'
            ),
            "no input has the name 'tokens'; did you mean 'token'?",
        ),
        (
            (
                'rollout = { steps = 4, feeds = { "present.1" = "past.1" }, constants = '
                '{ "past.1" = "passes.py:slim" } }'
            ),
            "'past.1' gets the output 'present.1' in each step; remove it here or in `feeds`",
        ),
        (
            (
                'rollout = { steps = 4, feeds = { logits = "token" }, constants = '
                '{ "past.1" = "passes.py:trim" } }'
            ),
            "passes.py does not define 'trim'",
        ),
        (
            'rollout = { steps = 4, feeds = { logits = "token" }, constants = { "past.1" = 3 } }',
            "expected 'file.py:function' or a list with a number for each step, got 3",
        ),
        (
            'rollout = { steps = 4, feeds = { logits = "token" }, constants = { "past.1" = [1] } }',
            "has 1 value, and `steps` is 4; write one for each step",
        ),
        (
            'rollout = { steps = 4, feeds = { logits = "token" }, loop = "loops.py:run" }',
            "loops.py' does not exist",
        ),
    ],
)
def test_values_that_do_not_fit_are_reported(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExporterError) as error:
        load(tmp_path, f"{text}\n")
    assert message in str(error.value).replace('"', "'")
