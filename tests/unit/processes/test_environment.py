from __future__ import annotations

import pytest

from exporter.processes import make_worker_environment


@pytest.mark.parametrize(
    "name", ["PATH", "HOME", "LC_ALL", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "TORCH_LOGS"]
)
def test_variables_of_the_worker_are_passed_on(name: str) -> None:
    assert make_worker_environment({name: "x"})[name] == "x"


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "GITHUB_STEP_SUMMARY",
        "ACTIONS_RUNTIME_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "HF_TOKEN",
        "PIP_INDEX_URL",
        "HTTPS_PROXY",
        "PYTHONWARNINGS",
        "SSH_AUTH_SOCK",
    ],
)
def test_other_variables_are_dropped(name: str) -> None:
    assert name not in make_worker_environment({name: "secret"})


def test_every_worker_has_one_thread() -> None:
    threads = make_worker_environment({"OMP_NUM_THREADS": "8"})
    assert threads["OMP_NUM_THREADS"] == "1"
    assert threads["PYTHONHASHSEED"] == "0"
