"""Published folders can be moved, run with other tools and contain only valid files."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
import yaml

from exporter.commands.publish.child.replaced_folder import compare_numbers
from exporter.commands.publish.published_folder import read_contract
from exporter.core.files import hash_file
from tests.integration.project import read_files, run_exporter

#: An optional runtime.
OPENVINO = ("openvino",) if find_spec("openvino") else ()
GREEN = {"weightless", "parts", "sound", "large", "masked"}
NAMES = {*GREEN, "README.md", "index.json"}
#: Runs the folders in `suite/light` with ONNX's own test runner on ONNX Runtime.
RUNNER = """
import sys
import unittest

import onnxruntime.backend
from onnx.backend.test import loader, runner

class SuiteRunner(runner.Runner):
    def __init__(self, backend, cases):
        loaded = runner.load_model_tests
        runner.load_model_tests = lambda *, kind: cases if kind == "real" else []
        super().__init__(backend, "__main__")
        runner.load_model_tests = loaded

cases = loader.load_model_tests(sys.argv[1], "light")
suite = SuiteRunner(onnxruntime.backend, cases).test_suite
result = unittest.TextTestRunner(verbosity=2).run(suite)
print(f"ran {result.testsRun - len(result.skipped)} of {len(cases)}")
sys.exit(not result.wasSuccessful())
"""


@pytest.fixture(scope="module")
def dist(nets: Path) -> Path:
    """Publish five green models beside two that fail."""
    models = (*GREEN, "baked", "expected")
    command = run_exporter(nets, "publish", "--initial", *models, "dist", code=1)
    assert "baked/17: not published: fail at parity (axes, values) on cpu" in command.stderr
    assert "expected/17: not published: xfail at parity (axes, values)" in command.stdout
    assert "7 files published in dist" in command.stdout, command.stderr
    return nets / "dist"


def copy_project(nets: Path, folder: Path) -> Path:
    """Copy the project with its results for a test that changes it."""
    shutil.copytree(nets, folder, ignore=shutil.ignore_patterns("dist"))
    return folder


def test_only_proved_files_are_published(dist: Path) -> None:
    names = {path.parent.relative_to(dist).as_posix() for path in dist.rglob("model.onnx")}
    files = {"weightless/17", "parts/17", "masked/17"} | {
        f"{m}/{o}" for m in ("sound", "large") for o in (17, 18)
    }
    assert names == files
    assert {path.name for path in dist.iterdir()} == NAMES
    assert not any(path.is_symlink() or path.stat().st_nlink > 1 for path in dist.rglob("*.*"))


def test_the_onnx_runner_passes_each_folder_after_a_move(dist: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite" / "light"
    # The runner compares masked positions too.
    folders = [path.parent for path in dist.rglob("model.onnx") if "masked" not in str(path)]
    for folder in folders:
        shutil.copytree(folder, suite / f"test_{folder.parent.name}_{folder.name}")
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, str(suite.parent)]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    assert f"ran {len(folders)} of {len(folders)}" in process.stdout, process.stderr
    wrong = suite / "test_sound_18" / "test_data_set_1"
    shutil.copy(wrong / "input_0.pb", wrong / "output_0.pb")
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert "test_sound_18_cpu" in process.stderr


def test_the_hashes_match_every_file(dist: Path) -> None:
    for folder in (path.parent for path in dist.rglob("model.onnx")):
        command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
        checked = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout
        assert checked.stdout.count(": OK") == len(read_files(folder)) - 1


def test_the_folders_are_proved_after_a_copy(dist: Path, tmp_path: Path) -> None:
    shutil.copytree(dist, tmp_path / "copy")
    verified = run_exporter(
        tmp_path, "verify", "copy/sound", "copy/masked", "copy/weightless", code=0
    )
    assert "4 verdicts: 4 proved, 0 red" in verified.stdout
    red = tmp_path / "copy/sound/18"
    shutil.copy(dist / "weightless/17/model.onnx", red / "model.onnx")
    verified = run_exporter(tmp_path, "verify", "copy/sound", code=1)
    assert "files: fail: model.onnx has another hash" in verified.stderr


def test_the_card_names_the_positions_that_are_compared(dist: Path) -> None:
    card = (dist / "masked/17/README.md").read_text()
    assert ", only at `mask = 1` |" in card
    assert "`y` has no meaning at other positions than `mask = 1`." in card
    (allowed,) = json.loads((dist / "masked/17/exporter.json").read_text())["allowed"]
    assert allowed["compared_at"] == "mask = 1"
    other = (dist / "sound/18/README.md").read_text()
    assert "no meaning" not in other
    assert " meaning |" in card
    assert " meaning |" not in other, "no column is empty"


def test_the_folder_contains_the_proof(dist: Path, nets: Path) -> None:
    proof = json.loads((dist / "sound/18/exporter.json").read_text())
    assert proof["is_green"]
    assert [record["cell"]["device"] for record in proof["records"]] == ["cpu", "reference"]
    assert proof["data_sets"][1] == {
        "folder": "test_data_set_1",
        "name": "batch=7",
        "kind": "axis",
        "axes": {"batch": 7},
    }
    tolerance = json.loads((dist / "sound/18/data.json").read_text())
    assert tolerance == {"rtol": 0.001, "atol": 0.001}  # of the contract, not more
    assert 0 < json.loads((dist / "large/18/data.json").read_text())["atol"] < 1e-4
    card = (dist / "sound/18/README.md").read_text()
    assert "| reference | pass |" in card
    assert "<b>" not in card
    assert "Do not use" not in card
    contract = json.loads((dist / "large/17/contract.json").read_text())
    assert [item["name"] for item in contract["inputs"]] == ["ids", "scale"]
    assert not [name for name, text in read_files(dist).items() if str(nets).encode() in text]


def test_the_card_answers_the_questions_of_a_consumer(dist: Path) -> None:
    card = (dist / "sound/18/README.md").read_text()
    assert yaml.safe_load(card.split("---")[1]) == {
        "license": "apache-2.0",
        "library_name": "onnx",
        "tags": ["onnx", "onnxruntime"],
    }
    digest = hashlib.sha256((dist / "sound/18/model.onnx").read_bytes()).hexdigest()
    for row in (
        f"| sha256 | `{digest}` |",
        "| needs | ONNX Runtime 1.18 or later; opset 18, IR version 10 |",
        "| weights | initial values of seed 0, not trained |",
        "| source | `models.py:Sound` of `manifests/nets.toml` |",
        "| version | 1.2.3 |",
        "| license | Apache-2.0 |",
        "| y | float32 | `[batch, 3]` | atol 0.001, rtol 0.001 |",
    ):
        assert row in card
    assert re.search(r"\| batch \| 1 and up \| 1 to \d+ \|", card)
    error = r"[\d.]+e[-+]\d\d, \S+ % of the allowed error"
    assert re.search(rf"\| cpu \| pass \| ONNX Runtime \S+, 1 thread \| {error}", card)
    assert "| ids | int64 | `[batch]` | 0 to 599 |" in (dist / "large/18/README.md").read_text()
    weights = next((dist / "large/18").glob("weights-*")).name
    data = f'externalData: [{{ path: "{weights}", data: "{weights}" }}]'
    assert data in (dist / "large/18/README.md").read_text()
    assert "## Use" not in (dist / "parts/17/README.md").read_text()  # a list has no array


def test_what_a_user_has_to_know_is_on_the_card_and_in_the_folder(dist: Path) -> None:
    folder = dist / "masked/17"
    card = (folder / "README.md").read_text()
    for text in (
        "**Proved** on cpu: all ",
        "% of the allowed one. **Its weights are not trained.**",
        "| metadata | `rate` = `16000`, in the file |",
        "| waves |",
        "values from 0 to 1 (declared, not proved: no caller has samples)",
        "3 labels of `y`, along its last axis: a, b, c",
        "options.intra_op_num_threads = 1",
        "{ intraOpNumThreads: 1 }",
        "the folder is unsigned",
        "| speed | not measured |",
        "| memory | not measured |",
        "| in a browser | not proved: no device of this proof has the runtime `web` |",
        "**Is there a newer one?** `index.json`, two folders above",
        "The entry names no owner to ask.",
        "The entry declares no license, so ask who gave it to you.",
    ):
        assert text in card, text
    published = json.loads((folder / "exporter.json").read_text())
    assert published["metadata"] == {"rate": "16000"}
    assert published["labels"] == {"y": ["a", "b", "c"]}
    assert published["preprocess"]["x"]["range"] == [0, 1]
    example = np.load(folder / "example.npz")
    for item in published["example"]:
        raw = np.frombuffer((folder / item["file"]).read_bytes(), item["dtype"])
        np.testing.assert_array_equal(raw.reshape(item["shape"]), example[item["name"]])
    properties = {each.key: each.value for each in onnx.load(folder / "model.onnx").metadata_props}
    assert properties["rate"] == "16000"


def test_the_differences_of_a_replaced_folder_are_printed(nets: Path, tmp_path: Path) -> None:
    root = copy_project(nets, tmp_path / "project")
    first, again = (
        run_exporter(root, "publish", "--initial", "masked", "dest", code=0).stdout
        for _ in range(2)
    )
    assert "changed: " not in first + again
    assert "no owner: masked; add `owner = " in first
    assert "no preprocess" not in first
    assert (
        "The folder that it replaces is not known"
        in (root / "dest/masked/17/README.md").read_text()
    )
    manifest = root / "manifests/nets.toml"
    text = manifest.read_text().replace('"waves"', '"other waves"')
    manifest.write_text(text.replace('"16000" }', '"16000" }\nversion = "2"'))
    changed = run_exporter(root, "publish", "--initial", "masked", "dest", code=0).stdout
    assert "changed: version: none -> 2\n" in changed
    assert "changed: meaning of x\n" in changed
    assert "numbers" not in changed
    folder = root / "dest/masked/17"
    card = (folder / "README.md").read_text()
    digest = json.loads((folder / "exporter.json").read_text())["replaces"]["sha256"]
    assert f"It replaces a file with the sha256 `{digest}`. What changed for a user:" in card
    assert "- version: none -" in card
    # The same file again has the same card, with what its first publication replaced.
    assert "changed: " not in run_exporter(root, "publish", "--initial", "masked", "dest").stdout
    assert (folder / "README.md").read_text() == card


def test_the_numbers_of_two_files_are_compared(dist: Path, tmp_path: Path) -> None:
    old = shutil.copytree(dist / "sound/18", tmp_path / "old")
    model = onnx.load(old / "model.onnx")
    (weight,) = [each for each in model.graph.initializer if list(each.dims) == [3]]
    array = onnx.numpy_helper.to_array(weight) + np.float32(1)
    weight.CopyFrom(onnx.numpy_helper.from_array(array, weight.name))
    onnx.save(model, old / "model.onnx")
    new = dist / "sound/18"
    (number,) = compare_numbers(old, new, read_contract(new))
    assert number.startswith("numbers of y: by up to 1, its largest value is ")
    text = (old / "exporter.json").read_text()
    same = text.replace(json.loads(text)["exported"], hash_file(new / "model.onnx"))
    (old / "exporter.json").write_text(same)
    assert not [*compare_numbers(old, new, read_contract(new))]  # by the hash of the export
    (old / "exporter.json").write_text(text)
    (old / "model.onnx").write_bytes(b"")
    (number,) = compare_numbers(old, new, read_contract(new))
    assert number == "numbers: the replaced file does not run on the new example.npz"


#: Prints the inputs and returns zeros, as the interface of onnxruntime-node.
PACKAGE = """
class Tensor { constructor(type, data, dims) { Object.assign(this, { type, data, dims }); } }
const run = async (feeds) => {
  const inputs = Object.entries(feeds);
  console.log(JSON.stringify(inputs.map(([n, t]) => [n, t.type, t.dims, [...t.data].map(Number)])));
  return {
    rows: new Tensor("float32", new Float32Array(1500), [3, 500]),
    next: new Tensor("int64", new BigInt64Array(3), [3]),
  };
};
const create = async () => ({ inputNames: ["ids", "scale"], run });
module.exports = { Tensor, InferenceSession: { create } };
"""


def test_the_code_of_a_card_runs_as_it_stands(dist: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dist / "large/18", tmp_path / "large")
    blocks = re.findall(r"```(python|js)\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    (folder / "run.mjs").write_text(next(text for kind, text in blocks if kind == "js"))
    texts = [text for kind, text in blocks if kind == "python"]
    command, *others = ([sys.executable, "-c", text] for text in texts)
    proved = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert proved.returncode == 0, proved.stderr
    example = dict(np.load(folder / "example.npz"))
    assert {name: (each.dtype.name, each.shape) for name, each in example.items()} == {
        "ids": ("int64", (3,)),
        "scale": ("float32", (3, 500)),
        "rows": ("float32", (3, 500)),
        "next": ("int64", (3,)),
    }
    if node := shutil.which("node"):
        package = folder / "node_modules/onnxruntime-node"
        package.mkdir(parents=True)
        (package / "index.js").write_text(PACKAGE)
        ran = subprocess.run(
            [node, "run.mjs"], cwd=folder, capture_output=True, text=True, check=False
        )
        lines = ran.stdout.splitlines()
        assert ran.returncode == 0, ran.stderr
        inputs = [["ids", "int64"], ["scale", "float32"]]
        assert json.loads(lines[0]) == [
            [*each, list(example[each[0]].shape), example[each[0]].ravel().tolist()]
            for each in inputs
        ]
        assert lines[1].startswith("rows [ 3, 500 ] largest error ")
        assert float(lines[1].split()[-1]) == np.abs(example["rows"]).max()
        assert float(lines[2].split()[-1]) == example["next"].max()
    assert len(others) == len(OPENVINO)
    for right, error in ((True, 0.0), (False, 1.0)):
        for each in others:  # prints the largest error
            ran = subprocess.run(each, cwd=folder, capture_output=True, text=True, check=False)
            assert float(ran.stdout) == pytest.approx(error, abs=1e-5), ran.stderr
        if right:
            np.savez(folder / "example.npz", **{**example, "rows": example["rows"] + 1})
    wrong = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "Not equal to tolerance" in wrong.stderr


def test_a_signature_in_the_folder_shows_a_change(dist: Path, tmp_path: Path) -> None:
    pytest.importorskip("model_signing", reason="an optional package")
    shutil.copytree(dist / "sound/18", tmp_path / "dist/alexnet/18")
    for options in (
        ("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem"),
        ("ec", "-in", "key.pem", "-pubout", "-out", "key.pub"),
    ):
        subprocess.run(["openssl", *options], cwd=tmp_path, check=True, capture_output=True)
    page = (Path(__file__).parents[2] / "docs/publish.md").read_text()
    lines = re.findall(r"^model_signing (.*)$", page, re.MULTILINE)
    sign, verify = ([sys.executable, "-m", "model_signing", *line.split()] for line in lines)
    for command in (sign, verify):
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert run_exporter(tmp_path, "verify", "--strict", "dist/alexnet/18").returncode == 0
    with (tmp_path / "dist/alexnet/18/README.md").open("a") as file:
        file.write("more")
    assert subprocess.run(verify, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_the_reader_of_the_hub_accepts_each_folder(dist: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="an optional package")
    for folder in (path.parent for path in dist.rglob("model.onnx")):
        card = hub.ModelCard.load(folder / "README.md")
        assert card.data.library_name == "onnx"
        assert card.data.tags == ["onnx", "onnxruntime"]
        for name in read_files(folder):  # as `hf upload` adds it
            hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name)
    assert hub.ModelCard.load(dist / "sound/18/README.md").data.license == "apache-2.0"


def test_the_file_is_described_and_its_proof_remains(nets: Path, dist: Path) -> None:
    exported = (nets / "build/sound/18.onnx").read_bytes()
    published = (dist / "sound/18/model.onnx").read_bytes()
    assert published.startswith(exported)
    before, model = map(onnx.load_model_from_string, (exported, published))
    assert model.doc_string == "A <b>layer</b> | of three"
    assert model.model_version == 1 << 48 | 2 << 32 | 3
    properties = {each.key: each.value for each in model.metadata_props}
    old = {each.key for each in before.metadata_props}
    assert {key: text for key, text in properties.items() if key not in old} == {
        "model_author": "@us",
        "model_license": "Apache-2.0",
    }
    for field in ("doc_string", "model_version", "metadata_props"):
        model.ClearField(field)
        before.ClearField(field)
    assert model == before
    proof = json.loads((dist / "sound/18/exporter.json").read_text())
    assert proof["sha256"] == hashlib.sha256(published).hexdigest()
    assert proof["exported"] == hashlib.sha256(exported).hexdigest()


def test_initial_weights_are_published_on_demand_only(nets: Path, tmp_path: Path) -> None:
    command = run_exporter(nets, "publish", "sound", str(tmp_path / "dest"), code=1)
    reason = "it has initial values of seed 0; set `weights` in the entry, or add `--initial`"
    assert f"sound/17..18: not published: {reason}" in command.stderr
    assert not (tmp_path / "dest").exists()


def test_a_destination_lists_its_files(dist: Path, nets: Path, tmp_path: Path) -> None:
    files = json.loads((dist / "index.json").read_text())["files"]
    assert [each["path"] for each in files] == [
        f"{name}/model.onnx"
        for name in (
            "large/17",
            "large/18",
            "masked/17",
            "parts/17",
            "sound/17",
            "sound/18",
            "weightless/17",
        )
    ]
    sound = files[5]
    assert (sound["license"], sound["version"], sound["onnxruntime"]) == (
        "Apache-2.0",
        "1.2.3",
        "1.18",
    )
    assert "| [sound](sound/18/README.md) | 18 |" in (dist / "README.md").read_text()
    (tmp_path / "README.md").write_text("mine")
    command = run_exporter(nets, "publish", "--initial", "sound/17", str(tmp_path), code=0)
    assert "README.md: is no list of `exporter publish`" in command.stderr
    assert (tmp_path / "README.md").read_text() == "mine"
    assert not (tmp_path / "index.json").exists()


def test_the_card_uses_the_template_of_the_project(nets: Path, tmp_path: Path) -> None:
    root = copy_project(nets, tmp_path / "project")
    (root / "templates").mkdir()
    (root / "templates/card.md.jinja").write_text("{{ model }} at {{ opset }}: {{ tools.onnx }}\n")
    run_exporter(root, "publish", "--initial", "sound/17", "dist", code=0)
    card = (root / "dist/sound/17/README.md").read_text()
    assert re.fullmatch(r"sound at 17: [\d.]+\n", card)


def test_publishing_again_gives_the_same_bytes(nets: Path, dist: Path) -> None:
    before = read_files(dist / "large")
    run_exporter(nets, "publish", "--initial", "large", "dist", code=0)
    assert read_files(dist / "large") == before
    assert {path.name for path in dist.iterdir()} == NAMES


@pytest.mark.parametrize("change", ["foreign", "marker", "extra", "link", "model link"])
def test_foreign_files_are_not_replaced(nets: Path, tmp_path: Path, change: str) -> None:
    dest = tmp_path / "dest"
    folder = dest / "sound" / "18"
    if change == "foreign":
        folder.mkdir(parents=True)
        (folder / "model.onnx").write_text("mine")
    elif change == "marker":
        folder.mkdir(parents=True)
        (folder / "exporter.json").write_text('{"format": 1}')
    elif change == "extra":
        assert run_exporter(nets, "publish", "--initial", "sound/18", str(dest)).returncode == 0
        (folder / "mine.txt").write_text("mine")
    elif change == "link":
        folder.parent.mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir()
        folder.symlink_to(tmp_path / "elsewhere")
    else:
        dest.mkdir()
        (tmp_path / "elsewhere").mkdir()
        folder.parent.symlink_to(tmp_path / "elsewhere")
    before = read_files(tmp_path)
    command = run_exporter(nets, "publish", "--initial", "sound/18", "large/18", str(dest), code=1)
    assert "sound/18: not published: " in command.stderr
    assert "Traceback" not in command.stderr
    after = read_files(tmp_path)
    catalog = {"dest/README.md", "dest/index.json"}
    assert all(after[name] == text for name, text in before.items() if name not in catalog)
    listed = json.loads(after["dest/index.json"])["files"]
    assert listed[0]["path"] == "large/18/model.onnx"
    assert (dest / "large/18/model.onnx").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("manifest", "its manifest entry changed since it was exported; run `exporter export"),
        ("weights", ".safetensors is not the file that was proved; run"),
        ("data", "test_data_set_1 is not the written sample; run `exporter export large`"),
    ],
)
def test_changed_files_are_not_published(
    nets: Path, tmp_path: Path, change: str, message: str
) -> None:
    root = copy_project(nets, tmp_path / "project")
    manifest, build = root / "manifests/nets.toml", root / "build/large"
    if change == "manifest":
        text = manifest.read_text()
        manifest.write_text(text.replace('name = "scale", shape', 'name = "scales", shape'))
    elif change == "weights":
        (weights,) = build.glob("*.safetensors")
        weights.write_bytes(b"\1" + weights.read_bytes()[1:])
    else:
        sample = build / "test_data_set_1"
        shutil.copy(build / "test_data_set_0/output_0.pb", sample / "output_0.pb")
    command = run_exporter(root, "publish", "--initial", "large/18", "dist", code=1)
    assert message in command.stderr
    assert not list(root.glob("dist/*/*"))
    if change == "data":  # the proposed command heals it
        assert run_exporter(root, "export", "large").returncode == 0
        assert run_exporter(root, "publish", "--initial", "large/18", "dist").returncode == 0


def test_published_red_files_have_a_warning(nets: Path, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    command = run_exporter(
        nets, "publish", "--initial", "baked", "expected", str(dest), "--include-red", code=0
    )
    assert "baked/17: published although it is red: fail at parity" in command.stderr
    for model in ("baked", "expected"):
        assert "**Do not use this file" in (dest / model / "17/README.md").read_text()
        proof = json.loads((dest / model / "17/exporter.json").read_text())
        assert not proof["is_green"]
        assert "at parity (axes, values) on cpu" in proof["warning"]


def test_a_missing_destination_is_an_error(nets: Path) -> None:
    command = run_exporter(nets, "publish", "--initial", "sound", code=2)
    assert "'sound' matches cells; add the destination" in command.stderr
    assert not (nets / "sound").exists()


@pytest.mark.parametrize("dest", ["build", "build/sound", "link", "pyproject.toml"])
def test_invalid_destinations_are_errors(nets: Path, tmp_path: Path, dest: str) -> None:
    root = copy_project(nets, tmp_path / "project")
    (root / "link").symlink_to(tmp_path)
    before = read_files(root / "build")
    command = run_exporter(root, "publish", "--initial", "sound/18", dest, code=4)
    assert command.stderr.startswith(f"{dest}: ")
    assert read_files(root / "build").keys() - {"build/stamps.json"} <= before.keys()
