"""Layers of settings: the precedence, the merged tables, and the places of problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import load_project
from tests.unit.manifest.projects import ENTRY, load, load_model, make_project

_NO_OPSETS = ENTRY.replace('opsets = "9..21"\n', "")


def _project(root: Path, **files: str) -> Path:
    paths = {"settings": "pyproject.toml"}
    return make_project(
        root, {paths.get(name, f"manifests/{name}.toml"): text for name, text in files.items()}
    )


def test_built_in_defaults(tmp_path: Path) -> None:
    model = load_model(tmp_path)
    assert (model.seed, model.mode, model.exporter, model.capture) == (0, "eval", "auto", None)
    assert (model.devices, model.timeout, model.options) == (("cpu",), 600.0, {})
    assert (model.tolerance.noise, model.tolerance.atol) == (None, None)


def test_each_layer_wins_over_those_before_it(tmp_path: Path) -> None:
    root = _project(
        tmp_path,
        settings='[tool.exporter.defaults]\nopsets = 9\ntimeout = 1\ndevices = ["reference"]\n'
        "tolerance = { noise = 2 }\n",
        net="format = 1\n[defaults]\ntimeout = 2\nmode = 'train'\nseed = 2\n"
        f"[models.a]\nextends = 'b'\nseed = 4\n[models.b]\nmode = 'keep'\nseed = 3\n{_NO_OPSETS}",
    )
    a, b = load_project(root).models
    assert (a.opsets, a.devices, a.tolerance.noise) == ((9,), ("reference",), 2.0)
    assert (a.timeout, a.mode, a.seed) == (2.0, "keep", 4)
    assert (b.timeout, b.mode, b.seed) == (2.0, "keep", 3)


def test_a_chain_of_entries_has_a_limit(tmp_path: Path) -> None:
    def write(count: int) -> str:
        later = (f"[models.m{i}]\nextends = 'm{i - 1}'\nseed = {i}\n" for i in range(1, count))
        return f"[models.m0]\n{ENTRY}{''.join(later)}"

    assert load(tmp_path / "sound", write(50)).find_model("m49").seed == 49
    with pytest.raises(ExporterError) as caught:
        load(tmp_path / "long", write(52))
    first, *others = str(caught.value).splitlines()
    assert "models.m50.extends: is in a chain of more than 50; extend an " in first, first
    assert len(others) == 1


def test_each_of_many_unknown_parents_has_a_suggestion(tmp_path: Path) -> None:
    """A suggestion that compared the name with all IDs took two minutes for 3,000 of them."""
    entries = (f"[models.model-{i}]\nextends = 'modl-{i}'\n" for i in range(150))
    with pytest.raises(ExporterError) as caught:
        load(tmp_path, "".join(entries))
    lines = [line for line in str(caught.value).splitlines() if "no model has the ID" in line]
    assert len(lines) == 150
    assert all(f"'model-{i}'?" in line for i, line in enumerate(lines)), lines


def test_init_options_and_axes_are_merged_and_other_keys_are_replaced(tmp_path: Path) -> None:
    text = (
        "[defaults]\ninit = { a = 1, b = { c = 1 } }\ntags = ['x']\noptions.verbose = true\n"
        f"axes.batch = {{ max = 8, min = 2 }}\n[models.net]\n{ENTRY}"
        "init = { b = { d = 2 } }\ntags = ['y']\noptions.export_params = false\n"
        "axes.batch = { multiple_of = 2 }\n"
    )
    model = load(tmp_path, text).find_model("net")
    assert model.init == {"a": 1, "b": {"d": 2}}
    assert model.options == {"verbose": True, "export_params": False}
    assert model.tags == ("y",)
    axis = model.find_axis("batch")
    assert (axis.min, axis.max, axis.multiple_of) == (2, 8, 2)


def test_an_axis_keeps_the_keys_of_the_parent_that_the_entry_does_not_set(tmp_path: Path) -> None:
    text = (
        f"[models.parent]\n{ENTRY}axes.batch = {{ example = 4, min = 2, max = 8 }}\n"
        "[models.child]\nextends = 'parent'\naxes.batch = { max = 6, multiple_of = 2 }\n"
    )
    axis = load(tmp_path, text).find_model("child").find_axis("batch")
    assert (axis.example, axis.min, axis.max, axis.multiple_of) == (4, 2, 6, 2)


def test_keys_of_an_axis_that_contradict_each_other_are_reported_in_their_files(
    tmp_path: Path,
) -> None:
    text = (
        f"[models.parent]\n{ENTRY}axes.batch = {{ example = 4, max = 8 }}\n"
        "[models.child]\nextends = 'parent'\naxes.batch.max = 3\n"
    )
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, text)
    (problem,) = raised.value.problems
    assert problem.key == "models.parent.axes.batch.example"
    assert problem.message == (
        'the axis "batch" takes sizes of at least 1 and at most 3, not 4 (for models.child)'
    )


def test_a_parent_has_the_defaults_of_its_own_file(tmp_path: Path) -> None:
    root = _project(
        tmp_path,
        a=f"format = 1\n[defaults]\nopsets = 17\ntags = ['a']\n[models.net]\n{_NO_OPSETS}",
        b="format = 1\n[defaults]\nopsets = 18\ntags = ['b']\nseed = 5\n"
        "[models.child]\nextends = 'net'\n",
    )
    child = load_project(root).find_model("child")
    assert (child.opsets, child.tags, child.seed) == ((17,), ("a",), 5)
    assert (child.manifest, child.line) == ("manifests/b.toml", 6)


def test_paths_of_a_parent_are_relative_to_its_files(tmp_path: Path) -> None:
    entry = ENTRY.replace(
        '"batch", 3] }', '"batch", 3], fill = { python = "models/vision.py:make" } }', 1
    )
    root = _project(tmp_path, net=f"format = 1\n[models.net]\n{entry}")
    deep = root / "manifests" / "deep" / "er"
    deep.mkdir(parents=True)
    (deep / "x.toml").write_text("format = 1\n[models.child]\nextends = 'net'\n")
    child = load_project(root).find_model("child")
    assert child.source == "../../models/vision.py:AlexNet"
    assert child.inputs[0].fill.python == "../../models/vision.py:make"
    assert (root / child.manifest).parent.joinpath("../../models/vision.py").is_file()


def test_models_have_the_order_of_files_and_entries(tmp_path: Path) -> None:
    entry = f"\n{ENTRY}"
    root = _project(
        tmp_path,
        b=f"format = 1\n[models.z]{entry}[models.a]{entry}",
        a=f"format = 1\n[models.m]{entry}",
    )
    assert [model.id for model in load_project(root).models] == ["m", "z", "a"]


def test_a_problem_in_defaults_is_reported_once_with_the_models(tmp_path: Path) -> None:
    models = "".join(f"[models.m{index}]\n{ENTRY}" for index in range(5))
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, f"[defaults]\ndevices = ['quantum']\n{models}")
    (problem,) = raised.value.problems
    assert str(problem).startswith("manifests/net.toml:3: defaults.devices[0]: no device")
    assert str(problem).endswith("(for models.m0, models.m1, models.m2 and 2 more)")


@pytest.mark.parametrize("key", ["skip", "expect"])
def test_a_default_condition_may_match_no_opset_of_a_model(tmp_path: Path, key: str) -> None:
    stage = ", stage = 'load'" if key == "expect" else ""
    condition = f"{key} = [{{ opset = '>=20', reason = 'r'{stage} }}]\n"
    old = ENTRY.replace('"9..21"', '"9..17"')
    load(tmp_path, f"[defaults]\n{condition}[models.new]\n{ENTRY}[models.old]\n{old}")
    new, old_model = load_project(tmp_path).models
    assert getattr(new, key)[0].opsets == (20, 21)
    assert getattr(old_model, key)[0].opsets == ()
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, f"[models.old]\n{old}{condition}")
    assert "matches none of the model's opsets 9..17" in str(raised.value.problems[0])


def test_an_invalid_default_that_an_entry_replaces_hides_no_problem(tmp_path: Path) -> None:
    entry = ENTRY.replace('"9..21"', "21")
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, f"[defaults]\nopsets = 99\n[models.net]\nexporter = 'torchscript'\n{entry}")
    keys = [problem.key for problem in raised.value.problems]
    assert keys == ["defaults.opsets", "models.net.opsets"]


def test_an_invalid_key_causes_no_follow_up_problems(tmp_path: Path) -> None:
    invalid = ENTRY.replace('shape = ["batch", 3] }]\noutputs', 'shap = ["batch"] }]\noutputs')
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, f"[models.net]\n{invalid}axes.batch.example = 4\nmode = 'fast'\n")
    assert [problem.key for problem in raised.value.problems] == [
        "models.net.inputs[0]",
        "models.net.inputs[0].shap",
        "models.net.mode",
    ]


def test_a_variant_in_half_precision_has_two_lines(tmp_path: Path) -> None:
    inputs = (
        "inputs = [{ name = 'x', shape = [2] }, { name = 't', shape = [], dtype = 'float32' },"
        " { name = 'ids', shape = [2], dtype = 'int64', fill = 'arange' }]\n"
        "outputs = [{ name = 'y', shape = [2] }, { name = 'z', shape = [2], dtype = 'int64' }]\n"
    )
    source = "source = 'models/vision.py:AlexNet'\nopsets = 18\n"
    root = _project(
        tmp_path,
        net=f"format = 1\n[models.net]\n{source}{inputs}"
        "[models.half]\nextends = 'net'\nprecision = 'float16'\n",
    )
    net, half = load_project(root).models
    assert (net.precision, half.precision) == (None, "float16")
    assert [item.dtype for item in net.inputs] == ["float32", "float32", "int64"]
    assert [item.dtype for item in half.inputs] == ["float16", "float32", "int64"]
    assert [item.dtype for item in net.outputs] == ["float32", "int64"]
    assert [item.dtype for item in half.outputs] == ["float16", "int64"]


def test_the_order_of_options_does_not_depend_on_hashing(tmp_path: Path) -> None:
    options = "options = { verbose = true, export_params = true, autograd_inlining = false }\n"
    assert list(load_model(tmp_path, options).options) == [
        "export_params",
        "verbose",
        "autograd_inlining",
    ]
