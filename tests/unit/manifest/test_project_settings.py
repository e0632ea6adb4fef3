"""`[tool.exporter]` of pyproject.toml."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import FindingKind, Manifest, load_project
from tests.unit.manifest.projects import ENTRY, make_project

NET = f"format = 1\n[models.net]\n{ENTRY}"


def _load(root: Path, settings: str, keys: str = "") -> Manifest:
    files = {"manifests/net.toml": NET + keys, "pyproject.toml": settings}
    return load_project(make_project(root, files))


def test_defaults_without_a_table(tmp_path: Path) -> None:
    project = _load(tmp_path, "[project]\nname = 'x'\n").project
    assert (project.build, project.reports) == ("build", "reports")
    assert project.manifests == ("manifests",)
    assert (project.engine, project.root) == ("local", str(tmp_path))
    assert project.style == "emoji"
    assert project.command == "exporter {}"
    assert [device.name for device in project.devices] == [
        *("cpu", "cuda", "tensorrt", "coreml", "directml", "openvino", "reference")
    ]
    assert project.find_device("cpu").providers == ("CPUExecutionProvider",)
    assert project.find_device("openvino").runtime == "openvino"


VERSION = metadata.version("onnx-exporter-matrix")


def test_another_version_of_the_program_is_an_error_with_the_command(tmp_path: Path) -> None:
    for required in (f"=={VERSION}", ">=0.1, <1000"):
        _load(tmp_path, f'[tool.exporter]\nrequires = "{required}"\n')
    settings = '[tool.exporter]\nrequires = ">=0.1, <0.2"\n'
    with pytest.raises(ExporterError) as caught:
        _load(tmp_path, settings)
    message = str(caught.value)
    assert message.startswith("pyproject.toml:2: ")
    assert f"requires version >=0.1,<0.2 of this program, and {VERSION} is installed" in message
    assert "run `pip install 'onnx-exporter-matrix>=0.1,<0.2'`" in message
    # A branch may require another version than the revision that it is compared with.
    assert load_project(tmp_path, fallback_root=tmp_path).project.requires == ">=0.1,<0.2"


def test_every_key(tmp_path: Path) -> None:
    manifest = _load(
        tmp_path,
        """
        [tool.exporter]
        manifests = "manifests"
        build = "out/build"
        reports = "docs/tables"
        store = "../shared store"
        store_size = "2GiB"
        style = "text"
        command = "nox -s {} --"
        environment = ["MY_*", "HF_HOME"]
        defaults.devices = ["fast", "cpu"]
        gate = {}
        [tool.exporter.devices.fast]
        runtime = "onnxruntime"
        providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        [tool.exporter.devices.cpu]
        runtime = "reference"
        """,
        "tolerance.fast = { atol = 1 }\n",
    )
    project = manifest.project
    assert (project.build, project.reports) == ("out/build", "docs/tables")
    assert (project.store, project.store_size) == ("../shared store", 2 << 30)
    assert project.style == "text"
    assert project.command == "nox -s {} --"
    assert project.environment == ("MY_*", "HF_HOME")
    assert project.find_device("fast").providers[0] == "CUDAExecutionProvider"
    assert project.find_device("cpu").runtime == "reference", "a built-in device can be redefined"
    assert manifest.find_model("net").devices == ("fast", "cpu")
    assert manifest.find_model("net").tolerance.by_device["fast"].rtol == 0.0


@pytest.mark.parametrize(("entry", "device"), [("", "cuda"), ("devices = ['cpu']\n", "cpu")])
def test_the_devices_of_an_entry_precede_the_default(
    entry: str, device: str, tmp_path: Path
) -> None:
    manifest = _load(tmp_path, "[tool.exporter]\ndefaults.devices = ['cuda']\n", entry)
    assert manifest.find_model("net").devices == (device,)


def test_another_folder_of_manifests(tmp_path: Path) -> None:
    root = make_project(
        tmp_path,
        {
            "pyproject.toml": "[tool.exporter]\nmanifests = 'contracts/onnx'\n",
            "contracts/onnx/net.toml": NET,
            "contracts/onnx/models/vision.py": "class AlexNet:\n    pass\n",
        },
    )
    assert load_project(root).find_model("net").manifest == "contracts/onnx/net.toml"


def test_several_folders_of_manifests(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": "[tool.exporter]\nmanifests = ['manifests', 'team_b/manifests']\n",
        "manifests/net.toml": NET,
        "team_b/manifests/net.toml": NET.replace("models.net", "models.other"),
        "team_b/manifests/models/vision.py": "class AlexNet:\n    pass\n",
    }
    project = load_project(make_project(tmp_path, files))
    assert [each.manifest for each in project.models] == [
        *("manifests/net.toml", "team_b/manifests/net.toml")
    ]
    (tmp_path / "team_b/manifests/net.toml").write_text(NET)
    message = r'team_b/manifests/net.toml:\d: .*"net" already exists at manifests/net.toml:\d'
    with pytest.raises(ExporterError, match=message):
        load_project(tmp_path)
    (invalid,) = {
        text for each in load_project(tmp_path, keep_invalid=True).models for text in each.problems
    }
    assert "already exists" in invalid


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ("[]", "expected a folder or a list of folders, got an empty list"),
        ("['manifests', 'manifests/team']", '"manifests/team" is inside "manifests"'),
        ("['manifests/team', 'manifests']", '"manifests/team" is inside "manifests"'),
        ("['manifests', 'manifests']", '"manifests" is listed twice'),
        (
            "['manifests', 'team']",
            r'pyproject.toml:2: .* the folder "team" does not exist; `exporter',
        ),
        ("['manifest']", "does not exist; did you mean 'manifests'"),
        (
            "['manifests', 'empty']",
            r'the folder "empty" contains no manifest \(\*\.toml\); `exporter record',
        ),
        ("['manifests', '../team']", "manifests"),
        ("['manifests', 3]", "manifests"),
        ("3", "manifests"),
        ("['manifests', 'reports/team']", None),
        ("['manifests', 'build/team']", None),
        ("['manifests', 'out']", "is inside the folder of `manifests`"),
    ],
)
def test_wrong_folders_of_manifests(tmp_path: Path, folders: str, message: str | None) -> None:
    (tmp_path / "empty").mkdir()
    settings = f"[tool.exporter]\nmanifests = {folders}\nbuild = 'out/build'\n"
    with pytest.raises(ExporterError, match=message):
        _load(tmp_path, settings)


def test_a_relative_root_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _load(tmp_path, "")
    monkeypatch.chdir(tmp_path)
    assert load_project(Path()).project.root == str(tmp_path)


def test_a_file_with_an_unprintable_name(tmp_path: Path) -> None:
    _load(tmp_path, "")
    (tmp_path / "manifests" / "a\nb.toml").write_text("")
    with pytest.raises(ExporterError, match=r'unprintable name, "manifests/a\\nb.toml"'):
        load_project(tmp_path)


def test_the_policy_of_a_model_precedes_that_of_a_pattern_and_of_the_project(
    tmp_path: Path,
) -> None:
    gate = _load(
        tmp_path,
        """
        [tool.exporter.gate]
        block = ["file_grown"]
        limits = { error_grown = 2 }
        [tool.exporter.gate.models."n*"]
        ignore = ["file_grown", "nodes_grown"]
        limits.file_grown = 2
        [tool.exporter.gate.models.net]
        warn = ["file_grown"]
        """,
    ).project.gate
    net, other = gate.find_policy("net"), gate.find_policy("resnet18")
    kinds = (FindingKind.ERROR_GROWN, FindingKind.FILE_GROWN)
    assert [net.find_limit(each) for each in kinds] == [2.0, 2.0]
    assert [other.find_limit(each) for each in kinds] == [2.0, 1.05]
    kinds = (FindingKind.FILE_GROWN, FindingKind.NODES_GROWN)
    assert [net.find_action(each) for each in kinds] == ["warn", "ignore"]
    assert [other.find_action(each) for each in kinds] == ["block", "warn"]


def test_a_policy_without_a_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ExporterError) as caught:
        _load(tmp_path, '[tool.exporter.gate.models."nett*"]\nwarn = ["missing"]\n')
    assert str(caught.value) == (
        'pyproject.toml:1: tool.exporter.gate.models."nett*": no model matches; '
        "did you mean 'net'?"
    )


def test_by_default_the_store_is_in_the_build_folder_and_limited(tmp_path: Path) -> None:
    project = _load(tmp_path, "").project
    assert (project.store, project.store_size) == ("", 10 << 30)


@pytest.mark.parametrize(
    "store",
    [
        "off",
        "~/.cache/exporter",
        "/srv/store",
        "../../x",
        "cache",
        "s3://bucket",
        "gs://bucket/a/b",
        "az://container/p",
        "https://host:8080/p",
        "file:///mnt/cells",
    ],
)
def test_valid_folders_of_a_store(tmp_path: Path, store: str) -> None:
    assert _load(tmp_path, f"[tool.exporter]\nstore = {store!r}\n").project.store == store


def test_the_store_and_the_engine_have_their_lines(tmp_path: Path) -> None:
    text = "[tool.exporter]\nstore = 's3://b/p/'\nengine = 'tls://10.0.0.1:8786'\n"
    project = _load(tmp_path, text).project
    assert (project.store, project.engine) == ("s3://b/p", "tls://10.0.0.1:8786")
    assert project.locate("store") == "pyproject.toml:2: tool.exporter.store"
    assert project.locate("engine") == "pyproject.toml:3: tool.exporter.engine"
    assert project.environments_folder == tmp_path / "build" / ".environments"


@pytest.mark.parametrize(
    ("table", "keys", "message"),
    [
        ("", "store = ''", "must not be blank"),
        ("", "store = 'a//b'", "expected a folder such as"),
        ("", "store = 'C:/x'", "expected a folder such as"),
        ("", "store = '~other/x'", "expected a folder such as"),
        ("", "store = true", "expected"),
        ("", "store = 's4://b/p'", 'unknown scheme "s4"; possible are s3://'),
        ("", "store = 's3a://b/p'", "did you mean 's3'"),
        ("", "store = 's3://'", 'expected a URL such as "s3://bucket/prefix"'),
        ("", "store = 's3://b//p'", 'expected a URL such as "s3://bucket/prefix"'),
        ("", "store = 's3://b/../p'", 'expected a URL such as "s3://bucket/prefix"'),
        ("", "store = 'https://user:password@host/p'", "contains a user or a password"),
        ("", "store = 'file://host/p'", 'expected a URL such as "file:///srv/store"'),
        ("", "store_key = '~/key'", "remove it, and set the variable EXPORTER_STORE_KEY"),
        ("", "jobs = 4", "is not valid here; remove it, or use `exporter export --jobs`"),
        ("", "build = '.git'", "expected a folder inside the project"),
        ("", "reports = 'a/.GIT/b'", "expected a folder inside the project"),
        ("", "build = '../out'", "expected a folder inside the project"),
        ("", "store = 'build/store'", 'is inside the folder of `build`, "build"'),
        ("", "store = 'reports'", 'is inside the folder of `reports`, "reports"'),
        ("", "store_size = 5", "expected a size of at least 1MB"),
        ("", "store_sise = '9GB'", "did you mean 'store_size'"),
        (
            "",
            "store_timeout = 0",
            "is not valid here; remove it; a run waits at most 120 s",
        ),
        ("", "store_age = '9w'", "is not valid here; remove it, or use `exporter gc"),
        ("", 'engine = "daks"', 'expected "local", "dask", the address of a scheduler such as'),
        ("", 'engine = "tcp://10.0.0.1"', 'expected "local", "dask", the address of'),
        ("", 'engine = "tcp://me@host:1"', 'expected "local", "dask", the address of'),
        ("", 'engine = "../c.py:make"', 'expected "local", "dask", the address of'),
        ("", 'engine = { cluster = "c.py:make" }', "expected text, got a table"),
        ("", "default_devices = ['cpu']", "write `devices` into [tool.exporter.defaults]"),
        ("", "thorough = true", "write it into [tool.exporter.defaults]"),
        (".evidence", "cuda = { age = 30 }", "expected an age such as"),
        (".evidence", "cuda = { age = '0d' }", "expected an age such as"),
        (".evidence", "cuda = { age = '9999w' }", "expected an age such as"),
        (".gate", 'warn = ["fixed", "fixed"]', '"fixed" is also in `warn`; remove one'),
        (".gate", 'block = ["fixed"]\nwarn = ["fixed"]', '"fixed" is also in `block`; remove one'),
        (".gate.models.net", 'block = ["fixed"]\nignore = ["fixed"]', "is also in `block`; remove"),
    ],
)
def test_the_last_key_is_rejected(tmp_path: Path, table: str, keys: str, message: str) -> None:
    lines = [f"[tool.exporter{table}]", *keys.splitlines()]
    with pytest.raises(ExporterError) as caught:
        _load(tmp_path, "\n".join(lines))
    key = f"tool.exporter{table}.{lines[-1].split()[0]}"
    assert str(caught.value).startswith(f"pyproject.toml:{len(lines)}: {key}")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["manifests", "reports", "reports/baseline", "templates"])
def test_a_folder_that_is_a_link_out_of_the_repository_is_refused(
    tmp_path: Path, name: str
) -> None:
    root = make_project(tmp_path / "project", {"manifests/net.toml": NET})
    other = tmp_path / "other"
    (root / name).rename(other) if (root / name).exists() else other.mkdir()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).symlink_to(other)
    load_project(root)  # without git, the link is the only copy
    (root / ".git").mkdir()
    with pytest.raises(ExporterError, match=f"^{name}: is a symlink out of the repository; copy"):
        load_project(root)
    other.rename(root / "inside")
    (root / name).unlink()
    (root / name).symlink_to(root / "inside")
    load_project(root)
