from __future__ import annotations

import pytest

from exporter.processes import worker_variables
from exporter.processes.worker_variables import (
    WITHHELD,
    describe_untested_torch,
    digest_variables,
    hash_variable,
    is_fixed,
    is_passed,
    list_shared_variables,
    make_worker_environment,
)


@pytest.mark.parametrize(
    "name",
    ["PATH", "HOME", "CUDA_VISIBLE_DEVICES", "PYTHONPATH", "TORCH_LOGS", "HF_HUB_OFFLINE"],
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
        "NVIDIA_API_KEY",
        "CUDA_DOWNLOAD_PASSWORD",
        "TORCH_HUB_TOKEN",
        "ORT_ACCESS_KEY_ID",
        "TORCH_PAT",
        "NVIDIA_AUTH",
        "ORT_PASS",
        "TORCHINDUCTOR_REDIS_URL",
    ],
)
def test_other_variables_are_dropped(name: str) -> None:
    assert name not in make_worker_environment({name: "secret"})


def test_listed_variables_are_passed_on_and_others_are_named() -> None:
    parent = {"HF_HOME": "/a", "MY_A": "1", "OTHER": "2", "PYTHONHASHSEED": "5"}
    environment = make_worker_environment(parent, ["HF_HOME", "MY_*", "PYTHONHASHSEED"])
    assert (environment["HF_HOME"], environment["MY_A"]) == ("/a", "1")
    assert environment["PYTHONHASHSEED"] == "0"
    assert environment[WITHHELD] == "OTHER"
    assert is_passed("MY_B", ["MY_*"])
    assert not is_passed("MY_B")
    assert not is_passed("PYTHONHASHSEED")


def test_the_width_of_a_terminal_is_no_variable_of_a_model() -> None:
    environment = make_worker_environment({"COLUMNS": "80", "TERM": "dumb", "WIDTH": "4"})
    assert environment[WITHHELD] == "WIDTH"
    assert "COLUMNS" not in environment
    assert make_worker_environment({"COLUMNS": "80"}, ["COLUMNS"])["COLUMNS"] == "80"


def test_a_secret_reaches_workers_only_if_the_project_lists_it() -> None:
    url = "https://user:p%40ss@host/simple"
    parent = {"NVIDIA_API_KEY": "nvapi-1", "TORCH_HUB_TOKEN": "2", "NVIDIA_VISIBLE_DEVICES": "all"}
    parent |= {"TORCH_INDEX_URL": url, "HF_HOME": url, "TORCH_HOME": "https://host/a@b"}
    environment = make_worker_environment(parent)
    assert "nvapi-1" not in str(environment)
    assert "p%40ss" not in str(environment)
    assert environment["TORCH_HOME"] == "https://host/a@b"
    assert {"TORCH_INDEX_URL", "HF_HOME"} <= {*environment[WITHHELD].split(",")}
    assert make_worker_environment(parent, ["HF_HOME"])["HF_HOME"] == url
    assert not is_passed("NVIDIA_API_KEY")
    assert is_passed("NVIDIA_VISIBLE_DEVICES")
    assert is_passed("NVIDIA_API_KEY", ["NVIDIA_API_KEY"])
    assert make_worker_environment(parent, ["NVIDIA_API_KEY"])["NVIDIA_API_KEY"] == "nvapi-1"
    assert list_shared_variables(parent) == {}
    assert list_shared_variables(parent, ["TORCH_HUB_TOKEN"]) == {"TORCH_HUB_TOKEN": "2"}


def test_a_listed_folder_of_a_cache_is_a_part_of_the_digest() -> None:
    one, other = {"TORCH_HOME": "/a"}, {"TORCH_HOME": "/b"}
    assert digest_variables(one, ["TORCH_HOME"]) != digest_variables(other, ["TORCH_HOME"])
    assert digest_variables(one, ()) == digest_variables(other, ())


def test_the_locale_and_the_time_zone_are_the_same_unless_they_are_listed() -> None:
    parent = {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "LANG": "C", "TZ": "Asia/Tokyo"}
    environment = make_worker_environment(parent)
    assert environment["LC_ALL"] == environment["LANG"] != "C"
    assert (environment["TZ"], "LC_NUMERIC" in environment) == ("UTC", False)
    assert is_fixed("TZ")
    assert not is_passed("TZ")
    assert digest_variables(parent, ()) == digest_variables({}, ())
    listed = make_worker_environment(parent, ["LC_*", "TZ"])
    assert {name: listed[name] for name in parent if name != "LANG"}.items() <= parent.items()
    assert not is_fixed("TZ", ["TZ"])
    assert is_passed("TZ", ["TZ"])
    assert digest_variables(parent, ["TZ"]) != digest_variables({}, ["TZ"])


def test_memory_of_large_tensors_stays_in_the_process() -> None:
    variables = make_worker_environment({})
    assert {variables[f"MALLOC_{name}_THRESHOLD_"] for name in ("MMAP", "TRIM")} == {str(1 << 30)}


def test_telemetry_is_off() -> None:
    assert make_worker_environment({"ORT_DISABLE_TELEMETRY": "0"})["ORT_DISABLE_TELEMETRY"] == "1"


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ({"HF_HOME": "/a"}, {"HF_HOME": "/b"}, True),
        ({"HF_HOME": "/a"}, {}, True),
        ({}, {"HF_HOME": ""}, True),
        ({"TORCH_COMPILE_DISABLE": "1"}, {}, True),
        ({"TORCH_LOGS": "x"}, {}, False),
        ({"TORCH_HOME": "/a"}, {"TORCH_HOME": "/b"}, False),
        ({}, {"TORCHINDUCTOR_CACHE_DIR": "/b"}, False),
        ({"OTHER": "1"}, {"OTHER": "2"}, False),
        ({"HF_TOKEN": "1"}, {"HF_TOKEN": "2"}, False),
        ({"HF_URL": "s3://u:1@host/a"}, {"HF_URL": "s3://u:2@host/a"}, False),
        ({"HF_URL": "s3://u:1@host/a"}, {"HF_URL": "s3://u:1@host/b"}, True),
        ({"HF_URL": "s3://host/a@1"}, {"HF_URL": "s3://host/a@2"}, True),
        ({"HF_TOKEN": "1"}, {}, True),
        ({"HF_A": "x", "HF_B": "y"}, {"HF_A": "xy", "HF_B": ""}, True),
    ],
)
def test_the_digest_changes_with_listed_variables(
    before: dict[str, str], after: dict[str, str], is_changed: bool
) -> None:
    digests = [digest_variables(each, ["HF_*"]) for each in (before, after)]
    assert (digests[0] != digests[1]) is is_changed


def test_a_secret_has_no_hash_of_its_value() -> None:
    assert hash_variable("MY_TOKEN", "a") == hash_variable("MY_TOKEN", "b")
    assert hash_variable("MY_FLAG", "a") != hash_variable("MY_FLAG", "b")
    assert hash_variable("MY_TOKEN", None) == hash_variable("MY_FLAG", None) == "missing"


def test_every_worker_has_one_thread() -> None:
    threads = make_worker_environment({"OMP_NUM_THREADS": "8"})
    assert threads["OMP_NUM_THREADS"] == "1"
    assert threads["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize(
    ("version", "line"),
    [
        ("2.13.0+cpu", ""),
        ("2.15.1", ""),
        ("2.16.0.dev2", "torch 2.16 is newer than this program knows: speed-ups are off"),
        ("2.12.0", "torch 2.12 is older than this program knows: speed-ups are off"),
        ("unknown", ""),
    ],
)
def test_a_torch_that_was_not_tested_has_one_line(
    version: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_variables, "version", lambda _: version)
    text = describe_untested_torch()
    assert text.startswith(line)
    assert bool(text) is bool(line)
    assert not text or text.endswith("speed-ups are off, verdicts are the same")
    if line:
        text = describe_untested_torch(["branches were not searched"])
        assert text.endswith("speed-ups are off, branches were not searched")
