"""Tables of environments and of their devices in pyproject.toml, and their problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporter.core.errors import ExporterError
from exporter.manifest import Device, Project, load_project
from tests.unit.manifest.projects import make_project

MANIFEST = """format = 1
[models.net]
source = "net.py:Net"
opsets = 18
inputs = [{ name = "x", shape = [2] }]
outputs = [{ name = "y", shape = [2] }]
"""
ENVIRONMENT = """
[tool.exporter.environments.ort117]
requirements = ["onnxruntime==1.17.3", "numpy<2"]
"""
DEVICE = """
[tool.exporter.devices.old]
runtime = "onnxruntime"
providers = ["CPUExecutionProvider"]
environment = "ort117"
"""


def load(root: Path, settings: str) -> Project:
    files = {"manifests/net.py": "Net = None\n", "manifests/net.toml": MANIFEST}
    return load_project(make_project(root, files | {"pyproject.toml": settings})).project


def test_a_device_contains_its_environment(tmp_path: Path) -> None:
    options = """
session_options = { enable_mem_pattern = false, "session.set_denormal_as_zero" = true }
provider_options = { CPUExecutionProvider = { arena = true, level = 2 } }
provider_library = "lib/own.so"
"""
    project = load(tmp_path, ENVIRONMENT + DEVICE + options)
    device = project.find_device("old")
    assert device.environment is not None
    assert device.environment.requirements == ("onnxruntime==1.17.3", "numpy<2")
    assert device.environment.location == "pyproject.toml:2"
    assert device.session_options["enable_mem_pattern"] is False
    assert device.provider_options == {"CPUExecutionProvider": {"arena": "1", "level": "2"}}
    assert device.provider_library == str(tmp_path / "lib/own.so")
    assert project.environments_folder == tmp_path / "build" / ".environments"


def test_a_function_may_return_the_library_of_a_provider(tmp_path: Path) -> None:
    library = 'provider_library = "package.module:get_library_path"\n'
    device = load(tmp_path, ENVIRONMENT + DEVICE + library).find_device("old")
    assert device.provider_library == "package.module:get_library_path"


@pytest.mark.parametrize(
    ("store", "folder"),
    [("off", "build/.environments"), ("../cells", "../cells-environments")],
)
def test_environments_are_beside_a_shared_store(store: str, folder: str, tmp_path: Path) -> None:
    project = load(tmp_path, f'[tool.exporter]\nstore = "{store}"\n')
    assert project.environments_folder == tmp_path / folder


@pytest.mark.parametrize(
    ("settings", "line", "message"),
    [
        (
            ENVIRONMENT + DEVICE.replace('"ort117"', '"ort17"'),
            8,
            'no environment has the name "ort17"; did you mean',
        ),
        (
            DEVICE,
            5,
            'no environment has the name "ort117"; add [tool.exporter.environments.ort117]',
        ),
        (
            ENVIRONMENT.replace("numpy<2", "npm:onnxruntime-web@1.30"),
            3,
            "packages of npm need an environment of their own, without `python`",
        ),
        (
            ENVIRONMENT.replace("onnxruntime==1.17.3", "npm:onnxruntime-web==1.30"),
            3,
            'expected a requirement such as "onnxruntime==1.17.3" or "npm:onnxruntime-web@1.30"',
        ),
        (
            DEVICE.replace('environment = "ort117"', 'variables = { A = "1" }'),
            5,
            "is only valid with `environment`: workers share their variables",
        ),
        (
            '[tool.exporter.devices.web]\nruntime = "web"\n',
            1,
            "needs `environment`; docs/devices.md has its tables",
        ),
        (
            ENVIRONMENT + '[tool.exporter.devices.web]\nruntime = "web"\nenvironment = "ort117"\n',
            6,
            'the runtime web needs packages of npm, and "ort117" has those of pip;',
        ),
        (
            '[tool.exporter.environments.ort117]\nrequirements = ["npm:onnxruntime-web@1.30"]\n'
            + DEVICE,
            7,
            'the runtime onnxruntime needs packages of pip, and "ort117" has those of npm;',
        ),
        (
            ENVIRONMENT.replace("onnxruntime==1.17.3", "onnxruntime=1.17"),
            3,
            'expected a requirement such as "onnxruntime==1.17.3" or "npm:onnxruntime-web@1.30"',
        ),
        (ENVIRONMENT.replace("numpy<2", "--index-url x"), 3, "expected a requirement such as"),
        ("[tool.exporter.environments.a]\nrequirements = []\n", 2, "expected at least one item"),
        ("[tool.exporter.environments.A]\nrequirements = ['x']\n", 1, "expected a name of a-z"),
        (ENVIRONMENT + DEVICE + DEVICE, 10, "is defined twice"),
        (DEVICE.replace("environment", "optimization"), 5, "graph_optimization_level"),
        (
            DEVICE.replace('environment = "ort117"', "session_options.enable_mem_patern = true"),
            5,
            'no option of a session has the name "enable_mem_patern"; did you mean',
        ),
        (
            DEVICE.replace('environment = "ort117"', "provider_options.CUDA.device_id = 1"),
            5,
            'the device has no provider "CUDA"; add it to `providers`',
        ),
        (
            (
                "[tool.exporter.devices.gpu]\nruntime = 'onnxruntime'\n"
                "providers = ['CUDAExecutionProvider']\n"
                "provider_options.CUDAExecutionProvider.enable_cuda_graph = '1'\n"
            ),
            4,
            "cannot be proved: a captured graph returns nothing from the second run on",
        ),
        (
            (
                "[tool.exporter.devices.gpu]\nruntime = 'onnxruntime'\n"
                "session_options.'ep.webgpuexecutionprovider.enableGraphCapture' = true\n"
            ),
            3,
            "cannot be proved: a captured graph returns nothing",
        ),
        (
            (
                "[tool.exporter.devices.gpu]\nruntime = 'onnxruntime'\n"
                "providers = ['CUDAExecutionProvider']\n"
                "provider_options.CUDAExecutionProvider.user_compute_stream = '94839'\n"
            ),
            4,
            "cannot be proved: its value is an address",
        ),
        (
            "[tool.exporter.devices.old]\nruntime = 'openvino'\nstrict = true\n",
            3,
            "is only valid for onnxruntime, not for openvino; remove it",
        ),
        (
            "[tool.exporter.devices.old]\nruntime = 'reference'\nsession_options.a = 1\n",
            3,
            "is only valid for onnxruntime and openvino, not for reference; remove it",
        ),
    ],
)
def test_a_problem_has_its_line(settings: str, line: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(ExporterError) as raised:
        load(tmp_path, settings)
    texts = [str(problem) for problem in raised.value.problems]
    assert any(f"pyproject.toml:{line}" in text and message in text for text in texts), texts


def test_an_option_that_is_switched_off_or_left_to_the_provider_is_valid(tmp_path: Path) -> None:
    settings = """
[tool.exporter.devices.gpu]
runtime = "onnxruntime"
providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
provider_options.CUDAExecutionProvider = { enable_cuda_graph = false, use_tf32 = "default" }
"""
    load(tmp_path, settings)
    device = Device(
        name="gpu",
        runtime="onnxruntime",
        providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
        provider_options={
            "CUDAExecutionProvider": {"enable_cuda_graph": "0", "use_tf32": "default"}
        },
    )
    assert device.provider_settings["CUDAExecutionProvider"] == {"enable_cuda_graph": "0"}
    assert "NVIDIA_TF32_OVERRIDE=0" in device.settings
    assert "use_tf32" not in device.settings
