"""A published folder is proved without torch, and each kind of damage makes it red."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper, parser

from exporter.checks.protocol import hash_sample
from exporter.cli.entry_point import exporter
from exporter.commands.publish.child.proof import verify_files
from exporter.commands.publish.published_folder import (
    Allowance,
    DataSet,
    Publication,
    PublishTarget,
    TargetResult,
    write_catalog,
)
from exporter.commands.publish.publisher import find_obstacle
from exporter.commands.verify import client
from exporter.commands.verify.child.folder_checks import check_folder
from exporter.commands.verify.client import (
    PublishedFile,
    VerifyOptions,
    _explain_release,
    verify_folders,
)
from exporter.commands.verify.command import _print_verdict
from exporter.core.errors import ExitCode, ExporterError
from exporter.gate.verify_report import DeviceVerdict, FolderVerdict
from exporter.manifest import Axis, CustomOp, Device, Input, ModelSpec, Output
from exporter.processes.child_call import MEMORY
from exporter.records.record import CheckResult, Status
from exporter.virtual_environments import EnvironmentDefinition, InstalledEnvironment
from tests.unit.checks.contexts import make_reference, write
from tests.unit.factory import make_artifact, make_record, make_spec

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 2] x) => (float[batch, 2] y) <float[2] w = {5000, 1}> { y = Mul(x, w) }
"""
#: It is right only if the batch is 3.
BAKED = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch, 2] x) => (float[batch, 2] y)
<float[3, 2] w = {5000, 1, 5000, 1, 5000, 1}> { y = Mul(x, w) }
"""
#: Its error of a thousandth in a small column is no error relative to the large one.
ROUGH = TEXT.replace("{5000, 1}", "{5000, 1.001}")
CPU = Device(name="cpu", runtime="onnxruntime")
GPU = Device(name="gpu", runtime="onnxruntime", providers=("NoSuchProvider",))
SPEC = make_spec(
    "net",
    inputs=(Input(name="x", shape=("batch", 2), at="args[0]"),),
    outputs=(Output(name="y", shape=("batch", 2)),),
    axes=(Axis(name="batch", example=3),),
)
SETS = (
    DataSet(folder="test_data_set_0", name="declared", kind="declared", axes={"batch": 3}),
    DataSet(folder="test_data_set_1", name="batch=7", kind="axis", axes={"batch": 7}),
)


def publish(folder: Path, text: str = TEXT, spec: ModelSpec = SPEC) -> Path:
    """Write a folder as `publish` does: x * (5000, 1) for two sizes."""
    folder.mkdir()
    onnx.save(parser.parse_model(text), folder / "model.onnx")
    samples = []
    for index, item in enumerate(SETS):
        x = np.random.default_rng(index).normal(size=(item.axes["batch"], 2)).astype(np.float32)
        wide = x.astype(np.float64) * [5000, 1]
        y = wide.astype(np.float32)
        samples.append(write(folder, index, [x], [y], exact=[wide], name=item.name, kind=item.kind))
        samples[-1] = samples[-1].model_copy(
            update={
                "axes": item.axes,
                "exact": True,
                "sha256": hash_sample(folder / item.folder),
            }
        )
    reference = make_reference(*samples, noise=(6e-8,))
    (folder / "reference.json").write_text(reference.to_json())
    names = [path.relative_to(folder).as_posix() for path in folder.glob("*/*.pb")]
    publication = Publication(
        model="net",
        opset=17,
        is_green=True,
        sha256=hashlib.sha256((folder / "model.onnx").read_bytes()).hexdigest(),
        tools={},
        data_sets=SETS,
        allowed=(Allowance(output="y", atol=1e-6, rtol=0.0),),
        records=(make_record("net/17/cpu"),),
        sources={name: name for name in names},
    )
    (folder / "exporter.json").write_text(publication.to_json())
    (folder / "contract.json").write_text(spec.to_json())
    write_sums(folder)
    return folder


def write_sums(folder: Path) -> None:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "SHA256SUMS")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder).as_posix()}\n"
        for path in files
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


def verify(
    folder: Path, device: Device = CPU, file: Path | None = None, *, is_strict: bool = False
) -> DeviceVerdict:
    (verdict,) = check_folder(
        PublishedFile(folder=folder, file=file, is_strict=is_strict),
        Publication.model_validate_json((folder / "exporter.json").read_bytes()),
        ModelSpec.model_validate_json((folder / "contract.json").read_bytes()),
        devices=(device,),
        root=folder,
        kernels=None,
    )
    return verdict


def test_a_right_folder_is_proved(tmp_path: Path) -> None:
    verdict = verify(publish(tmp_path / "net"))
    assert verdict.status is Status.PASS, verdict
    assert [each.check for each in verdict.checks] == [
        *("files", "opset", "wellformed", "signature", "placement", "determinism", "power"),
        *("parity", "axes"),
    ]


def other_output(folder: Path) -> None:
    path = folder / "test_data_set_1/output_0.pb"
    wrong = numpy_helper.from_array(np.ones((7, 2), np.float32))
    path.write_bytes(wrong.SerializeToString())


def other_shape(folder: Path) -> None:
    """PyTorch's output and the file's have a shape that the contract does not have."""
    path = folder / "contract.json"
    path.write_text(path.read_text().replace('"batch",\n        2', '"batch",\n        3'))


def other_opset(folder: Path) -> None:
    model = onnx.load(folder / "model.onnx")
    model.opset_import[0].version = 16
    onnx.save(model, folder / "model.onnx")


def no_reference(folder: Path) -> None:
    (folder / "reference.json").unlink()


def foreign_path(folder: Path) -> None:
    edit_marker(folder, sources={"test_data_set_0/input_0.pb": "../secret.pb"})


def hidden_data_set(folder: Path) -> None:
    content = json.loads((folder / "exporter.json").read_text())
    edit_marker(folder, data_sets=content["data_sets"][:1])


def red(folder: Path) -> None:
    edit_marker(folder, is_green=False, warning="fail at parity")


def linked_model(folder: Path) -> None:
    """The linked file is right today, and a copy of the folder lacks it."""
    (folder / "model.onnx").rename(folder.parent / "elsewhere.onnx")
    (folder / "model.onnx").symlink_to(folder.parent / "elsewhere.onnx")


def pipe(name: str) -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return replace


def edit_marker(folder: Path, **fields: object) -> None:
    content = json.loads((folder / "exporter.json").read_text())
    (folder / "exporter.json").write_text(json.dumps({**content, **fields}))


def repeated_source(folder: Path) -> None:
    name = "test_data_set_0/input_0.pb"
    edit_marker(folder, sources={f"test_data_set_{index}/input_0.pb": name for index in range(9)})


def other_labels(folder: Path) -> None:
    edit_marker(folder, labels={"y": ["cat", "dog"]})


def other_metadata(folder: Path) -> None:
    edit_marker(folder, metadata={"sample_rate": "8000"})


def too_many_labels(folder: Path) -> None:
    labels = ["cat", "dog", "bird"]
    edit_marker(folder, labels={"y": labels})
    content = json.loads((folder / "contract.json").read_text())
    content["outputs"][0]["labels"] = labels
    (folder / "contract.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("damage", "check", "message"),
    [
        (repeated_source, "files", "'test_data_set_0/input_0.pb' is the source of several files"),
        (other_labels, "files", "the labels of exporter.json are not those of contract.json"),
        (other_metadata, "files", "the metadata of exporter.json are not those of contract.json"),
        (too_many_labels, "files", "output 'y' has 3 labels, its last axis is 2 long"),
        (other_output, "files", "the sample 'batch=7' differs from its hash"),
        (other_shape, "signature", "dimension 1 of input 'x' is 2, declared 3"),
        (other_opset, "opset", "the file has opset 16, expected 17"),
        (no_reference, "files", "reference.json"),
        (foreign_path, "files", "'../secret.pb' is not the name of a sample's file"),
        (hidden_data_set, "files", "differ from those in exporter.json: test_data_set_1"),
        (linked_model, "files", "expected regular files, which can be copied: model.onnx"),
        (pipe("model.onnx"), "files", "expected regular files, which can be copied: model.onnx"),
        (pipe("weights.data"), "files", "expected regular files, which can be copied: weights"),
        (red, "files", "it was published although it is red: fail at parity"),
    ],
)
def test_a_wrong_folder_is_red_although_its_hashes_match(
    tmp_path: Path, damage: Callable[[Path], None], check: str, message: str
) -> None:
    folder = publish(tmp_path / "net")
    damage(folder)
    write_sums(folder)
    verdict = verify(folder)
    assert verdict.status.is_red
    assert verdict.check == check
    assert message in verdict.message


@pytest.mark.parametrize("name", ["model.onnx", "test_data_set_0/input_0.pb"])
def test_a_sparse_file_of_terabytes_is_not_read(tmp_path: Path, name: str) -> None:
    folder = publish(tmp_path / "net")
    with (folder / name).open("wb") as file:
        file.truncate(1 << 42)
    verdict = verify(folder)
    assert verdict.status.is_red
    assert f"{name} has more bytes than ONNX can have" in verdict.checks[0].message
    assert client._hash_model(folder / "model.onnx") == "" or name != "model.onnx"


def test_a_list_of_hashes_is_a_file(tmp_path: Path) -> None:
    folder = publish(tmp_path / "net")
    pipe("SHA256SUMS")(folder)
    assert "expected regular files, which can be copied: SHA256SUMS" in verify(folder).message
    assert "was not written by `exporter publish`" in find_obstacle(folder)


@pytest.mark.parametrize(
    ("device", "has_limit"),
    [(CPU, True), (Device(name="ov", runtime="openvino"), True), (GPU, False)],
)
def test_the_time_and_the_memory_of_a_folder_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Device, has_limit: bool
) -> None:
    calls: list[tuple[float, Mapping[str, str]]] = []

    def call(_: str, __: object, ___: object, environment: Any, *, seconds: float) -> Any:
        calls.append((seconds, environment))
        return ()

    monkeypatch.setattr(client, "call_in_child", call)
    folder = publish(tmp_path / "net", spec=SPEC.model_copy(update={"timeout": 1e6}))
    options = VerifyOptions(devices=(device,), root=tmp_path, manifest=None, environment={})
    assert list(verify_folders([PublishedFile(folder=folder)], options)) == []
    ((seconds, environment),) = calls
    assert seconds == 3600
    assert (int(environment.get(MEMORY, 0)) > 1 << 28) is has_limit


@pytest.mark.parametrize("name", ["model.onnx", "contract.json", "test_data_set_0/input_0.pb"])
def test_a_changed_file_is_red(tmp_path: Path, name: str) -> None:
    folder = publish(tmp_path / "net")
    (folder / name).write_bytes((folder / name).read_bytes() + b"\n")
    verdict = verify(folder)
    assert verdict.check == "files"
    assert f"{name} has another hash" in verdict.message


def test_a_signature_is_a_part_of_the_folder(tmp_path: Path) -> None:
    folder = publish(tmp_path / "net")
    (folder / "model.sig").touch()
    verdict = verify(folder, is_strict=True)
    (files,) = (each for each in verdict.checks if each.check == "files")
    assert (files.status, files.message) == (Status.PASS, "")


@pytest.mark.parametrize(
    ("name", "is_red"),
    [
        (".gitattributes", False),
        (".cache/huggingface/CACHEDIR.TAG", False),
        ("test_data_set_0/.DS_Store", False),
        ("test_data_set_0/input_1.pb", True),
    ],
)
def test_a_file_that_nothing_refers_to_is_a_note(tmp_path: Path, name: str, is_red: bool) -> None:
    folder = publish(tmp_path / "net")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).touch()
    verdict = verify(folder)
    (files,) = (each for each in verdict.checks if each.check == "files")
    assert files.status is (Status.FAIL if is_red else Status.PASS)
    assert f"{name} is not in SHA256SUMS" in files.message if is_red else name in files.message
    strict = verify(folder, is_strict=True)
    assert strict.status is Status.FAIL
    assert f"{name} is not in SHA256SUMS" in strict.message


def test_a_list_of_hashes_without_the_proof_is_red(tmp_path: Path) -> None:
    folder = publish(tmp_path / "net")
    sums = folder / "SHA256SUMS"
    lines = sums.read_text().splitlines(keepends=True)
    for name in ("model.onnx", "contract.json", "exporter.json", "reference.json"):
        sums.write_text("".join(line for line in lines if not line.endswith(f"  {name}\n")))
        assert f"{name} is not in SHA256SUMS" in verify(folder).message


@pytest.mark.parametrize(
    ("status", "runtime", "message"),
    [
        (
            Status.ERROR,
            "onnxruntime 1.17.3",
            "the file needs ONNX Runtime 1.18, and onnxruntime 1.17.3 is installed; install "
            + "'onnxruntime>=1.18', or use opset 16",
        ),
        (Status.ERROR, "onnxruntime 1.18.0", "no IR"),
        (Status.UNAVAILABLE, "onnxruntime 1.17.3", "no IR"),
        (Status.ERROR, "openvino 2026.4.1", "no IR"),
    ],
)
def test_the_reason_of_a_file_that_cannot_run_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: Status, runtime: str, message: str
) -> None:
    """`make_record` has IR version 10, the sibling IR version 8."""
    item = PublishedFile(folder=publish(tmp_path / "18"))
    publication = Publication.model_validate_json((item.folder / "exporter.json").read_bytes())
    artifact = make_artifact("net", 16, ir_version=8)
    older = publication.model_copy(
        update={"opset": 16, "records": (make_record("net/16/cpu", artifact=artifact),)}
    )
    (publish(tmp_path / "16") / "exporter.json").write_text(older.to_json())
    passed = (CheckResult(check="files", status=Status.PASS, message="note"),)
    verdict = DeviceVerdict(
        device="cpu", status=status, message="no IR", runtime=runtime, checks=passed
    )
    verdict = _explain_release(item, publication, verdict)
    _print_verdict(FolderVerdict(path="net/18", model="net", opset=18, verdict=verdict))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{status:12}  net/18 on cpu: {message}", "    note: note"]


def test_a_file_that_is_right_only_at_the_exported_size_is_red(tmp_path: Path) -> None:
    verdict = verify(publish(tmp_path / "net", BAKED))
    statuses = {each.check: each.status for each in verdict.checks}
    assert (statuses["parity"], statuses["axes"]) == (Status.PASS, Status.FAIL)
    assert verdict.status is Status.FAIL
    assert "batch=7: the runtime fails" in verdict.message


@pytest.mark.parametrize(
    ("text", "status"), [(TEXT, Status.PASS), (BAKED, Status.FAIL), (ROUGH, Status.FAIL)]
)
def test_another_file_is_proved_with_the_test_data(
    tmp_path: Path, text: str, status: Status
) -> None:
    other = tmp_path / "other.onnx"
    onnx.save(parser.parse_model(text.replace("net (", "another (")), other)
    assert verify(publish(tmp_path / "net"), file=other).status is status


def test_a_missing_device_is_unavailable_but_hides_no_failure(tmp_path: Path) -> None:
    folder = publish(tmp_path / "net")
    assert verify(folder, GPU).status is Status.UNAVAILABLE
    (folder / "contract.json").write_text((folder / "contract.json").read_text() + "\n")
    assert verify(folder, GPU).check == "files"


def test_a_folder_is_verified_before_it_is_published(tmp_path: Path) -> None:
    """The CPU runs the file if its device is unavailable."""
    folder = publish(tmp_path / "net")

    def verify_target() -> TargetResult:
        target = PublishTarget(opset=17, devices=(GPU,), folder=folder)
        (result,) = verify_files(SPEC, folder, (target,))
        return result

    proved = verify_target()
    assert proved.problems == ()
    assert proved.notes[0].startswith("not loaded on gpu, which is unavailable")
    onnx.save(parser.parse_model(BAKED), folder / "model.onnx")
    (problem,) = verify_target().problems
    assert problem.startswith("ONNX Runtime on the CPU: axes: batch=7: the runtime fails")
    (folder / "model.onnx").unlink()
    assert "model.onnx" in "; ".join(verify_target().problems)
    (folder / "reference.json").unlink()
    assert verify_target().problems[0].startswith("reference.json")


def test_kernels_come_only_from_the_project(tmp_path: Path) -> None:
    """A published contract must not name code that is imported."""
    kernels = (CustomOp(name="my::Op", reference="os:remove"),)
    folder = publish(tmp_path / "net", spec=SPEC.model_copy(update={"custom_ops": kernels}))
    verdict = verify(folder)
    assert verdict.status is Status.UNAVAILABLE
    assert "run the command in the project of the entry" in verdict.message


def test_a_folder_is_proved_by_a_process_without_torch(tmp_path: Path) -> None:
    for name in ("torch", "onnxscript"):
        (tmp_path / "blocked" / name).mkdir(parents=True)
        source = "raise ImportError('blocked')\n"
        (tmp_path / "blocked" / name / "__init__.py").write_text(source)
    root = Path(__file__).parents[4]
    environment = {"PYTHONPATH": f"{tmp_path / 'blocked'}:{root}"}
    folders = (publish(tmp_path / "net"), tmp_path / "unreadable")
    folders[1].mkdir()
    (folders[1] / "exporter.json").write_text("{}")
    options = VerifyOptions(devices=(CPU,), root=tmp_path, manifest=None, environment=environment)
    files = [PublishedFile(folder=folder) for folder in folders]
    proved, unreadable = verify_folders(files, options)
    assert (proved.verdict.status, proved.model, proved.opset) == (Status.PASS, "net", 17)
    assert unreadable.verdict.status is Status.ERROR
    assert unreadable.verdict.message == "exporter.json cannot be read: model: Field required"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing"], ExitCode.NOTHING_SELECTED, "missing: does not exist"),
        (["."], ExitCode.NOTHING_SELECTED, ".: contains no folder of `exporter publish`"),
        (["peer"], ExitCode.NOTHING_SELECTED, "; compare its tokens by `--reference FOLDER`"),
        (
            ["peer/model", "--entry", "a"],
            ExitCode.NOTHING_SELECTED,
            "peer/model: is a folder of a decoder; name its file, or compare its tokens by",
        ),
        (["peer", "--reference", "b"], ExitCode.NOTHING_SELECTED, "decoder; name peer/model"),
        (["peer/model", "--reference", "b"], ExitCode.NOTHING_SELECTED, "b: does not exist"),
        (["net.onnx"], ExitCode.MANIFEST, "net.onnx: is a file; add `--entry MODEL`"),
        (
            ["net.onnx", "--entry", "a", "--reference", "b"],
            ExitCode.MANIFEST,
            "pass one of the two",
        ),
        (
            ["missing.onnx", "--entry", "a"],
            ExitCode.NOTHING_SELECTED,
            "missing.onnx: no such file; pass the path of an ONNX file",
        ),
        (["net.onnx", "--entry", "net/last"], ExitCode.MANIFEST, "expected MODEL or MODEL/OPSET"),
        ([".", "--device", "cpi"], ExitCode.MANIFEST, "no device has the name 'cpi'; use one of"),
    ],
)
def test_bad_input_has_a_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: ExitCode,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.onnx").touch()
    if "peer" in arguments[0]:
        (tmp_path / "peer/model").mkdir(parents=True)
        (tmp_path / "peer/model/genai_config.json").touch()
    error = CliRunner().invoke(exporter, ["verify", *arguments]).exception
    assert message in str(error)
    assert getattr(error, "exit_code", None) == code


def test_the_environment_of_a_device_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = (
        '[tool.exporter.environments.own]\nrequirements = ["onnxruntime"]\n'
        '[tool.exporter.devices.other]\nruntime = "onnxruntime"\nenvironment = "own"\n'
        'providers = ["CPUExecutionProvider"]\n'
        '[tool.exporter.evidence]\nother = { age = "30d", elsewhere = true }\n'
    )
    (tmp_path / "pyproject.toml").write_text(settings)
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/net.toml").write_text("format = 1\n")
    publish(tmp_path / "net")

    def install(definition: EnvironmentDefinition, folder: Path) -> InstalledEnvironment:
        (folder / definition.key).mkdir(parents=True)
        (folder / definition.key / "environment.json").touch()
        installed.append(environment)
        return environment

    environment = InstalledEnvironment(folder=Path(sys.prefix), packages={})
    installed: list[InstalledEnvironment] = []
    module = "exporter.pipeline.device_environments"
    monkeypatch.setattr(f"{module}.install_environment", install)
    monkeypatch.setattr(
        f"{module}.find_environment", lambda *_: installed[0] if installed else None
    )
    arguments = ["verify", str(tmp_path / "net"), "--root", str(tmp_path), "--device", "other"]
    result = CliRunner().invoke(exporter, arguments)
    assert "creating the environment own: onnxruntime" in result.stderr
    assert result.stdout.startswith("pass "), result.output


def without_records(folder: Path) -> None:
    edit_marker(folder, records=[])


def unknown_format(folder: Path) -> None:
    edit_marker(folder, format=1)


def linked_marker(folder: Path) -> None:
    (folder / "exporter.json").unlink()
    (folder / "exporter.json").symlink_to("/dev/zero")


def endless(folder: Path) -> None:
    """A contract whose child process would have no limit."""
    path = folder / "contract.json"
    path.write_text(path.read_text().replace('"timeout": 600.0', '"timeout": NaN'))


def nested(folder: Path) -> None:
    (folder / "contract.json").write_text("[" * 100_000)


def deep(folder: Path) -> None:
    """A path with more characters than the system allows."""
    current = Path.cwd()
    os.chdir(folder)
    try:
        for _ in range(35):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
    finally:
        os.chdir(current)


def many(folder: Path) -> None:
    path = folder.joinpath(*["d"] * 1100)
    for each in reversed([path, *path.parents]):
        if not each.exists():
            each.mkdir()


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Path]:
    """Return a folder that Python cannot remove, nor can a later run of pytest."""
    yield tmp_path / "b"
    subprocess.run(["rm", "-rf", tmp_path / "b"], check=True)


@pytest.mark.parametrize(
    "change", [without_records, unknown_format, linked_marker, endless, nested, deep, many]
)
def test_a_hostile_folder_does_not_end_the_verdicts_of_others(
    tmp_path: Path,
    hostile: Path,
    change: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good = DeviceVerdict(device="cpu", status=Status.PASS)
    monkeypatch.setattr(client, "call_in_child", lambda *_, **__: (good,))
    for name in ("a", "b", "c"):
        publish(tmp_path / name)
    change(hostile)
    folders = client.list_published_folders(tmp_path)
    files = [PublishedFile(folder=each) for each in folders]
    options = VerifyOptions(devices=(CPU,), root=tmp_path, manifest=None, environment={})
    verdicts = [*verify_folders(files, options)]
    assert [each.verdict.status for each in verdicts if Path(each.path).name != "b"] == ["pass"] * 2
    last = next(each for each in verdicts if Path(each.path).name == "b")
    assert last.verdict.status == ("pass" if change in (deep, many) else "error")
    assert not write_catalog(tmp_path, tmp_path)


def test_an_unexpected_exception_is_the_verdict_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(client, "call_in_child", fail)
    options = VerifyOptions(devices=(CPU,), root=tmp_path, manifest=None, environment={})
    (found,) = verify_folders([PublishedFile(folder=publish(tmp_path / "net"))], options)
    assert found.verdict.status is Status.ERROR
    assert found.verdict.message == "the folder cannot be proved: tuple index out of range"


def test_a_link_out_of_the_repository_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project/.git").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    Path("dist").symlink_to(tmp_path / "other")
    Path("net.onnx").touch()
    for arguments in (
        ["dist"],
        ["net.onnx", "--reference", "dist"],
        ["dist", "--entry", "net"],
        ["dist", "--reference", "net.onnx"],
    ):
        result = CliRunner().invoke(exporter, ["verify", *arguments])
        assert isinstance(result.exception, ExporterError), arguments
        assert str(result.exception).startswith("dist: a symlink leads out of the repository;")
    Path("dist").unlink()
    Path("inside").mkdir()
    Path("dist").symlink_to("inside")
    result = CliRunner().invoke(exporter, ["verify", "dist"])
    assert "contains no folder of `exporter publish`" in str(result.exception)
