"""`exporter record`, `add` and `init`: from a stranger's script to proved entries."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tomli
import torch

from exporter.commands.recording.recorder import record_command
from exporter.core.errors import ExitCode
from tests.integration.project import ROOT, read_files, run_exporter, run_python

NET = """
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, vocab, width=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.places = nn.Embedding(40, width)
        self.head = nn.Linear(width, 5)

    def forward(self, ids, mask):
        x = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        m = mask.unsqueeze(-1).float()
        return {"logits": self.head((x * m).sum(1) / m.sum(1)), "hidden": x}


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.pool = function, nn.MaxPool1d(3, 2, 1)

    def forward(self, x):
        return self.function(self.pool(x))


class Fixed(nn.Module):
    '''Accepts any length; the captured program keeps the one of the example.'''

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 3, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0]
"""
LSTM = {"weight_ih_l0": (12, 3), "weight_hh_l0": (12, 3), "bias_ih_l0": (12,), "bias_hh_l0": (12,)}
EXPORT = """
import os
import sys
import torch
from net import Applied, Encoder


class Wrapper(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(ids, mask)["logits"]


def main():
    os.makedirs("out", exist_ok=True)
    os.chdir("out")
    model = Encoder(30)
    state = torch.load("../encoder.pt")["model"]
    model.load_state_dict({key.removeprefix("module."): each for key, each in state.items()})
    axes = {0: "batch", 1: "seq"}
    torch.onnx.export(
        Wrapper(model), (torch.randint(0, 30, (2, 7)), torch.ones(2, 7, dtype=torch.int64)),
        "wrapped.onnx", input_names=["ids", "mask"], output_names=["logits"],
        dynamic_axes={"ids": axes, "mask": axes}, opset_version=17, dynamo=False,
    )
    torch.onnx.export(
        model, (torch.randint(0, 30, (1, 7)), torch.ones(1, 7)), "encoder.onnx",
        opset_version=17, dynamo=False, do_constant_folding=False,
    )
    torch.onnx.export(
        Applied(lambda x: x + 1), torch.rand(2, 3, 8), "applied.onnx", input_names=["x"],
        dynamic_axes={"x": [2]}, opset_version=17, dynamo=False,
    )
    sys.exit(3)


if __name__ == "__main__":
    main()
"""
MAIN = """

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


def find_portable_entries(root: Path) -> Path:
    """Return the folder of the entries; their texts have no absolute path and name no schema."""
    folder = root / "manifests"
    for path in (*folder.rglob("*.toml"), *folder.rglob("*.py")):
        assert str(root) not in path.read_text(), f"{path.name} has an absolute path"
    # An editor reports a schema that no file has.
    assert not any("#:schema" in path.read_text() for path in folder.glob("*.toml"))
    return folder


def test_each_export_of_a_script_becomes_a_proved_entry(root: Path) -> None:
    (root / "export.py").write_text(EXPORT)
    weights = {
        "embed.weight": torch.rand(30, 4),
        "places.weight": torch.rand(40, 4),
        "head.weight": torch.rand(5, 4),
        "head.bias": torch.rand(5),
    }
    checkpoint = {f"module.{name}": each for name, each in weights.items()}
    torch.save({"model": checkpoint, "epoch": 3}, root / "encoder.pt")
    own = read_files(root)
    command = ("--yes", "--", sys.executable, "export.py")
    ran = run_exporter(root, "record", *command, code=ExitCode.OK)
    assert "the command exited with 3; its observed calls are used" in ran.stderr
    verdicts = [line for line in ran.stdout.splitlines() if "/17/cpu: " in line]
    assert verdicts == [f"{name}/17/cpu: pass" for name in ("wrapped", "encoder", "applied")]
    assert ran.stdout.count(".onnx against ") == 3
    assert "names its inputs input.1, onnx::Unsqueeze_1, and the entry ids, mask" in ran.stdout
    folder = find_portable_entries(root)
    wrapped, encoder, applied = (
        tomli.loads((folder / f"{name}.toml").read_text())["models"][name]
        for name in ("wrapped", "encoder", "applied")
    )
    assert wrapped == {
        "source": "models/wrapped.py:build",
        "weights": {
            "file": "../encoder.pt",
            "key": "model",
            "strip": "module.",
            "prefix": "model.",
        },
        "inputs": [
            {
                "name": "ids",
                "shape": ["batch", "seq"],
                "dtype": "int64",
                "fill": {"randint": [0, 30]},
            },
            {
                "name": "mask",
                "shape": ["batch", "seq"],
                "dtype": "int64",
                "fill": {"mask": "right"},
            },
        ],
        "outputs": [{"name": "logits", "shape": ["batch", 5]}],
        "axes": {"seq": {"max": 40}},
        "opsets": 17,
        "exporter": "torchscript",
    }
    assert "return export.Wrapper(net.Encoder(30))" in (folder / "models/wrapped.py").read_text()
    assert (encoder["source"], encoder["init"]) == ("net:Encoder", {"vocab": 30})
    assert encoder["weights"] == {"file": "../encoder.pt", "key": "model", "strip": "module."}
    assert encoder["options"] == {"do_constant_folding": False}
    assert encoder["outputs"][0] == {"name": "18", "shape": [1, 5]}
    assert applied["axes"] == {"Add3_dim_2": {"of": "x_dynamic_axes_1", "stride": 2, "kernel": 1}}
    text = (folder / "models/applied.py").read_text()
    assert "Reason: a lambda has no name that can be imported" in text
    assert own.items() <= read_files(root).items()
    # Then the script and the entries change.
    (folder / "encoder.toml").unlink()
    (folder / "applied.toml").unlink()
    edited = (folder / "wrapped.toml").read_text().replace("opsets = 17", "opsets = [17, 19]")
    (folder / "wrapped.toml").write_text(f"{edited}tolerance = {{ noise = 9.0 }}\n")
    script = EXPORT.replace('output_names=["logits"]', 'output_names=["scores"]')
    (root / "export.py").write_text(
        script.split("    torch.onnx.export(\n        Applied")[0] + MAIN
    )
    ran = run_exporter(
        root, "record", "--check", "--", sys.executable, "export.py", code=ExitCode.RED
    )
    lines = [line for line in ran.stdout.splitlines() if ".toml:" in line or "has no entry" in line]
    assert lines[0].startswith("manifests/wrapped.toml:3: wrapped: outputs: [{'name': 'logits'")
    assert lines[1:] == ["net.py:Encoder: has no entry; run `exporter record` without --check"]
    ran = run_exporter(root, "record", "--update", *command)
    assert "updated manifests/wrapped.toml" in ran.stdout, ran.stdout + ran.stderr
    updated = tomli.loads((folder / "wrapped.toml").read_text())["models"]["wrapped"]
    assert updated == wrapped | {
        "outputs": [{"name": "scores", "shape": ["batch", 5]}],
        "opsets": [17, 19],
        "tolerance": {"noise": 9.0},
    }


#: A script whose service keeps its output open.
SERVICE = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
"""


@pytest.mark.parametrize(
    ("script", "timeout", "message"),
    [
        ("print('done')", "60", "made no call of torch.onnx.export"),
        (
            "raise RuntimeError('no GPU')",
            "60",
            "no export was observed; the command exited with code 1",
        ),
        (
            "import torch\n\ntorch.onnx._export(torch.nn.Linear(2, 3), (torch.zeros(2),), 'x')",
            "60",
            "script.py:3: torch.onnx._export does not exist in the installed torch; call torch",
        ),
        ("while True: pass", "2", "the command was killed"),
        (SERVICE, "60", "made no call of torch.onnx.export"),
    ],
)
def test_a_script_without_an_export_has_a_message(
    root: Path, script: str, timeout: str, message: str
) -> None:
    (root / "script.py").write_text(script)
    command = ("--timeout", timeout, "--", sys.executable, "script.py")
    ran = run_exporter(root, "record", *command, code=ExitCode.NOTHING_SELECTED)
    assert message in ran.stderr
    assert {path.name for path in root.iterdir()} <= {"net.py", "script.py"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("record", "--", "no-such-program"), "no-such-program: no such program"),
        (("record", "--", sys.executable, "-I", "-c", ""), "remove `-I` and `-E`"),
        (("record", "--model", "no.py:Net", "--", "true"), "--model no.py: no such file"),
        (("add", "net.py:Nothing", "--input", "x=2"), 'no definition of "Nothing" can be read'),
        (("add", "net.py:Fixed", "--input", "x=2y"), "expected NAME=SIZES:DTYPE"),
        (("add", "net.py:Fixed"), "has no inputs; add --input x=2x3"),
        (("add", "net.py:Fixed", "--input", "z=2x3"), "`forward` has the parameters x"),
        (("list",), "manifests: the folder does not exist; `exporter record -- python export.py`"),
    ],
)
def test_wrong_arguments_have_a_message(
    root: Path, arguments: tuple[str, ...], message: str
) -> None:
    ran = run_exporter(root, *arguments)
    assert ran.returncode in (ExitCode.MANIFEST, ExitCode.NOTHING_SELECTED, ExitCode.ENVIRONMENT)
    assert message in ran.stderr
    assert [path.name for path in root.iterdir() if path.is_file()] == ["net.py"]


def test_a_folder_with_the_name_of_a_package_is_named(root: Path) -> None:
    folder = root / "onnx"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "run.py").write_text(
        "import torch\nmodel = torch.nn.Linear(2, 3)\n"
        "torch.onnx.export(model, (torch.zeros(1, 2),), 'x.onnx')\n"
    )
    command = ("record", "--", sys.executable, "-m", "onnx.run")
    ran = run_exporter(root, *command, code=ExitCode.RED)
    fix = "rename the folder onnx, which hides the installed package onnx"
    assert "the script's own export failed: ModuleNotFoundError: " in ran.stderr
    assert ran.stdout.splitlines()[-1].endswith(f"1 missing; next: a model: {fix}"), ran.stdout


#: A script whose file has no name that can be imported; a second run would write a file again.
NAMED = """
import sys

import torch
from torch import nn

sys.path.insert(0, "lib")
from inner import Inner


class Wrapper(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def main(path):
    with open("tokens.txt", "w") as file:
        file.write("0")
    inner = Inner(6)
    inner.load_state_dict(torch.load(path))
    torch.onnx.export(
        Wrapper(inner), (torch.zeros(2, 6),), "net.onnx", opset_version=17, dynamo=False
    )


if __name__ == "__main__":
    main(sys.argv[1])
"""


def test_a_class_of_a_script_without_a_name_for_an_import_is_copied(root: Path) -> None:
    (root / "lib").mkdir()
    (root / "lib/inner.py").write_text(WORDS.replace("Words", "Inner").replace("kind, ", ""))
    text = (root / "lib/inner.py").read_text().replace("        self.kind = kind\n", "")
    (root / "lib/inner.py").write_text(text)
    (root / "export-net.py").write_text(NAMED)
    torch.save(torch.nn.ModuleDict({"layer": torch.nn.Linear(6, 3)}).state_dict(), root / "a.pt")
    command = ("record", "--yes", "--", sys.executable, "export-net.py", "a.pt")
    ran = run_exporter(root, *command, code=ExitCode.OK)
    assert "net/17/cpu: pass" in ran.stdout
    text = (find_portable_entries(root) / "models/net.py").read_text()
    assert "return Wrapper(inner.Inner(6))" in text
    assert 'parents[2] / "lib"' in text
    file = str(root / "manifests/models/net.py")
    ran = run_python(root.parent, "-c", f"import runpy; runpy.run_path({file!r})['build']()")
    assert not ran.stderr, ran.stderr


ITS_OWN_CAUSE = """
import torch


class Net(torch.nn.Module):
    def forward(self, x):
        error = ValueError("a bad value")
        raise error from error


torch.onnx.export(Net(), (torch.ones(2, 3),), "net.onnx", dynamo=False)
"""


def test_an_error_that_is_its_own_cause_ends_the_recording(root: Path) -> None:
    (root / "script.py").write_text(ITS_OWN_CAUSE)
    ran = run_exporter(root, "record", "--yes", "--", sys.executable, "script.py")
    assert "own export failed: ValueError: a bad value" in ran.stderr


#: It writes to the folder of the recording, also while that is removed.
WRITER = """
import glob, tempfile
(folder,) = glob.glob(tempfile.gettempdir() + "/exporter-record-*/output")
print(flush=True)
for number in range(20_000):
    open(f"{folder}/{number}", "w").close()
"""


def test_a_service_that_still_writes_changes_no_message(root: Path, tmp_path: Path) -> None:
    (root / "writer.py").write_text(WRITER)
    (root / "script.py").write_text(
        "import subprocess, sys\n"
        "command = [sys.executable, 'writer.py']\n"
        "subprocess.Popen(command, stdout=subprocess.PIPE).stdout.readline()\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = ("record", "--", sys.executable, "script.py")
    ran = run_exporter(root, *command, TMPDIR=str(temporary))
    assert ran.returncode == ExitCode.NOTHING_SELECTED, ran.stderr
    assert "made no call of torch.onnx.export" in ran.stderr


def test_an_interrupt_leaves_nothing(root: Path) -> None:
    (root / "endless.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(300)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter", "record", "--", sys.executable, "endless.py"],
        cwd=root,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.endswith("interrupted\n")  # there are no results
    assert time.monotonic() - started < 30
    assert sorted(path.name for path in root.iterdir()) == ["endless.py", "net.py"]


THREADS = """
import threading
import torch
from safetensors.torch import save_file
from torch import nn

torch.save(nn.Linear(2, 2).state_dict(), "saved.pt")
save_file({"a": torch.rand(2)}, "saved.safetensors")
barrier = threading.Barrier(3)


class Waiting(nn.Module):
    def forward(self, x):
        return x * 2


def export(width):
    barrier.wait()
    torch.onnx.export(Waiting(), torch.rand(1, width), f"{width}.onnx", dynamo=False)


threads = [threading.Thread(target=export, args=(width,)) for width in (2, 3, 4)]
for each in threads:
    each.start()
for each in threads:
    each.join()


class Failing(nn.Module):
    def forward(self, x):
        return x.lgamma()


torch.onnx.export(Failing(), torch.rand(1, 2), "failing.onnx", dynamo=False)
"""


def test_threads_written_weights_and_a_failed_export_are_observed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.py").write_text(THREADS)
    monkeypatch.chdir(tmp_path)
    command = (sys.executable, "-W", "ignore", "script.py")
    with record_command(command, os.environ, lambda line: None) as (calls, code):
        assert code == 1
    assert [each.problem for each in calls] == [""] * 4
    names = {each.class_name: each for each in calls}
    assert sorted(names) == ["Failing", "Waiting"]
    widths = [each.tensors[0].shape[1] for each in calls if each.class_name == "Waiting"]
    assert sorted(widths) == [2, 3, 4]
    files = [Path(each).name for each in names["Waiting"].files]
    assert files == ["saved.pt", "saved.safetensors"]
    # Exports of torch at the same time can fail by themselves.
    assert "aten::lgamma" in names["Failing"].export_error


BRANCHING = """
import torch


class Branching(torch.nn.Module):
    def forward(self, x):
        return x * 0 if float(x.sum()) > 1e9 else x + 1


torch.onnx.export(Branching(), (torch.rand(2, 4),), "branching.onnx", opset_version=17)
"""


def test_the_cause_and_the_fix_of_a_failed_export_are_named(root: Path) -> None:
    (root / "branching.py").write_text(BRANCHING)
    ran = run_exporter(root, "record", "--yes", "--", sys.executable, "branching.py")
    (cause,) = (line for line in ran.stderr.splitlines() if "own export failed" in line)
    assert "failed: GuardOnDataDependentSymNode: Could not guard on data-dependent" in cause
    assert cause.endswith("; pass `dynamo=False` to try the exporter of older releases")
    assert "    fix: ship the file of `exporter export`, which passes here\n" in ran.stderr


CHILDREN = """
import multiprocessing, sys
import torch
from net import Fixed


def work(width):
    torch.onnx.export(Fixed(), torch.rand(1, width, 3), f"{width}.onnx", dynamo=False)


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    processes = [context.Process(target=work, args=(width,)) for width in (2, 3)]
    for each in processes:
        each.start()
    for each in processes:
        each.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_exports_of_child_processes_are_observed(
    root: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "script.py").write_text(CHILDREN)
    monkeypatch.chdir(root)
    command = (sys.executable, "-W", "ignore", "script.py", method)
    with record_command(command, os.environ, lambda line: None) as (calls, _):
        assert sorted(each.title for each in calls) == ["2", "3"]
        assert {each.construction.name for each in calls} == {"Fixed"}


def test_the_file_that_a_script_edited_is_compared_and_proved(root: Path) -> None:
    net = "\n\nclass Net(nn.Module):\n    def forward(self, x):\n"
    (root / "net.py").write_text(f"{NET}{net}        return x.view(1, -1) * 2\n")
    script = """
import onnx
import torch
from net import Net
torch.onnx.export(Net(), torch.rand(1, 3, 4), "net.onnx", input_names=["x"],
                  output_names=["y"], dynamo=False, opset_version=17)
{edit}
"""
    edit = """
file = onnx.load("net.onnx")
file.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
onnx.save(file, "net.onnx")
"""
    command = ("record", "--dry-run", "--", sys.executable, "script.py")
    (root / "script.py").write_text(script.format(edit=edit))
    ran = run_exporter(root, *command, code=ExitCode.RED)
    assert "net/17/cpu: pass" in ran.stdout
    promised = "net.onnx: input x has the shape [batch, 3, 4], and the entry promises [1, 3, 4]"
    assert promised in ran.stdout
    assert "net.onnx against net: fail: signature:" in ran.stdout
    (root / "script.py").write_text(script.format(edit=""))
    ran = run_exporter(root, *command, code=ExitCode.OK)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("net.onnx")]
    assert lines == ["net.onnx against net: pass"]


def test_add_writes_a_wrong_guess_with_its_red_verdict(root: Path) -> None:
    source = ("add", "net.py:Fixed", "--input", "x=2x5x3", "--yes")
    ran = run_exporter(root, *source, code=ExitCode.RED)
    (line,) = re.findall("^fixed/18/cpu: fail: signature: .*", ran.stdout, re.MULTILINE)
    assert "axis 'length' of output 'output' is fixed at 5" in line
    text = (root / "manifests/fixed.toml").read_text()
    assert "# guessed: axes batch, length: the model ran at several sizes of each" in text


def test_add_takes_weights_a_name_and_opsets(root: Path) -> None:
    table = {f"lstm.{name}": torch.ones(shape) for name, shape in LSTM.items()}
    torch.save({"model": table}, root / "trained.pt")
    options = ("--weights", "trained.pt", "--opset", "17", "--opset", "18", "--yes")
    command = ("add", "net.py:Fixed", "--input", "x=2x5x3", "--name", "long-name", *options)
    ran = run_exporter(root, *command, code=ExitCode.RED)
    assert "long-name/18/cpu: fail: signature" in ran.stdout
    entry = tomli.loads((root / "manifests/long-name.toml").read_text())["models"]["long-name"]
    assert entry["weights"] == {"file": "../trained.pt", "key": "model"}
    assert entry["opsets"] == [17, 18]
    ran = run_exporter(root, "add", "net.py:Fixed", "--input", "x=2x5x3", code=ExitCode.OK)
    assert "`--name ID` adds a second entry" in ran.stdout
    other = ("add", "net.py:Encoder", "--init", "vocab=9", "--input", "ids=2x3:int64")
    ran = run_exporter(root, *other, "--name", "long-name", code=ExitCode.MANIFEST)
    assert "--name long-name: this name is taken" in ran.stderr


def test_calls_of_a_class_and_of_a_function_become_entries(root: Path) -> None:
    calls = "import net, torch\nmodel = net.Encoder(9)\n"
    calls += "for n in (3, 5): model(torch.zeros(2, n).long(), torch.ones(2, n))\n"
    (root / "calls.py").write_text(calls)
    ran = run_exporter(
        root, "record", "--model", "net.py:Encoder", "--yes", "--", sys.executable, "calls.py"
    )
    assert "1 model observed" in ran.stderr
    entry = tomli.loads((root / "manifests/encoder.toml").read_text())["models"]["encoder"]
    assert entry["inputs"][0]["shape"] == ["batch", "length"]
    assert "encoder/18/cpu: pass" in ran.stdout
    (root / "inputs.py").write_text("import torch\ndef make(): return (torch.rand(2, 3, 8),), {}\n")
    (root / "inner").mkdir()
    ran = run_exporter(
        root / "inner", "add", "torch.nn:Linear", "--init", "in_features=8",
        "--init", "out_features=2", "--call", "inputs.py:make", "--dry-run",
    )  # fmt: skip
    assert "linear/18/cpu: pass" in ran.stdout, ran.stdout + ran.stderr
    assert f"the entries are for the project {root}" in ran.stderr
    assert not (root / "manifests/linear.toml").exists()
    assert not any((root / "inner").iterdir())


REPLAYED = """
import os
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layer, self.act = nn.Linear(4, 8), act

    def forward(self, x):
        return self.act(self.layer(x))


torch.manual_seed(7)
scale = float(os.environ.get("SCALE", "2"))
model = Net(lambda x: x * scale).eval()
if os.path.exists("saves"):
    torch.save(model.state_dict(), "last.pt")
torch.onnx.export(model, (torch.zeros(2, 4),), "net.onnx")
"""


def test_an_export_replays_a_script_without_changing_its_files(tmp_path: Path) -> None:
    root, beside = tmp_path / "project", tmp_path / "other.log"
    root.mkdir()
    (root / "script.py").write_text(REPLAYED)
    (root / "last.pt").write_text("precious")
    beside.touch()
    command = ("record", "--yes", "--", sys.executable, "script.py")
    run_exporter(root, *command, code=ExitCode.OK)
    assert "runpy" in (root / "manifests/models/net.py").read_text()
    run_exporter(root, "export", code=ExitCode.OK)
    beside.write_text("another program writes it")
    assert "0 cells to run, 1 to keep" in run_exporter(root, "plan").stdout
    (root / "saves").touch()
    done = run_exporter(root, "export", "--force", "--no-store", code=ExitCode.RED)
    assert "last.pt: the script writes it before its export" in done.stdout
    assert (root / "last.pt").read_text() == "precious"


TRAINING = """
import torch
from torch import nn
from helpers import Scale

WIDTH = 6


class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.layer, self.scale, self.act = nn.Linear(WIDTH, 8), Scale(), act

    def forward(self, x):
        return self.act(self.scale(self.layer(x)))


torch.manual_seed(7)
model = Net(lambda x: x.relu() + 1)
model.layer = nn.Linear(WIDTH, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(4, WIDTH)).square().mean().backward()
    optimizer.step()
with open("runs.txt", "a") as log:
    log.write("trained\\n")
SAVE
model.eval()
torch.onnx.export(model, (torch.zeros(2, WIDTH),), "net.onnx", opset_version=17, dynamo=False)
"""


@pytest.mark.parametrize("save", ["", "torch.save(model.state_dict(), 'last.pt')"])
def test_a_script_trains_once_when_it_is_recorded(root: Path, save: str) -> None:
    tool = root / "tools"
    tool.mkdir()
    (tool / "helpers.py").write_text(
        "from torch import nn\nclass Scale(nn.Module):\n    def forward(self, x): return x * 3\n"
    )
    (tool / "train.py").write_text(TRAINING.replace("SAVE", save))
    ran = run_exporter(root, "record", "--yes", "--", sys.executable, "tools/train.py")
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert "net.onnx against net: pass" in ran.stdout
    assert ran.stdout.endswith("1 new entry, 0 red or missing; next: `exporter init`\n")
    folder = find_portable_entries(root)
    entry = tomli.loads((folder / "net.toml").read_text())["models"]["net"]
    assert entry["weights"] == ("../last.pt" if save else "models/net.pt")
    assert ("commit or ignore it as you do with checkpoints" in ran.stdout) is not save
    text = (folder / "models/net.py").read_text()
    assert "WIDTH = 6\n" in text
    assert 'parents[2] / "tools"' in text
    assert "optimizer" not in text
    before = read_files(root)
    run_exporter(root, "export", code=ExitCode.OK)
    assert {name: each for name, each in read_files(root).items() if name in before} == before
    assert (root / "runs.txt").read_text() == "trained\n"
    assert (root / "build/.gitignore").read_text() == "*\n"
    if not save:  # a second run of the script has other weights
        (root / "tools/train.py").write_text(
            TRAINING.replace("SAVE", "").replace("range(3)", "range(4)")
        )
        check = ("record", "--check", "--", sys.executable, "tools/train.py")
        ran = run_exporter(root, *check, code=ExitCode.RED)
        assert "weights: the script's run has other values than net.pt" in ran.stdout


PICKLED = """
import torch
from words import Words

torch.manual_seed(3)
model = Words("sum", width=6)
model(torch.randn(4, 6)).square().mean().backward()
for each in model.parameters():
    each.data.add_(each.grad, alpha=-0.1)
torch.save(model, "whole.pt")
Words("mean", 2)
del model
model = torch.load("whole.pt", weights_only=False)
model.eval()
torch.onnx.export(model, (torch.zeros(2, 6),), "net.onnx", opset_version=17, dynamo=False)
"""
WORDS = """
from torch import nn


class Words(nn.Module):
    def __init__(self, kind, width):
        super().__init__()
        self.kind = kind
        self.layer = nn.Linear(width, 3)

    def forward(self, x):
        return self.layer(x)
"""


def test_a_model_that_a_script_saves_and_reads_is_built_by_its_class(root: Path) -> None:
    """A replay would write the file again; another module of the class is no hindrance."""
    (root / "words.py").write_text(WORDS)
    (root / "train.py").write_text(PICKLED.replace('Words("mean", 2)\n', ""))
    command = ("record", "--yes", "--", sys.executable, "train.py")
    ran = run_exporter(root, *command, code=ExitCode.OK)
    entry = tomli.loads((root / "manifests/net.toml").read_text())["models"]["net"]
    assert entry["source"] == "words:Words"
    assert entry["init"] == {"kind": "sum", "width": 6}
    assert "net.onnx against net: pass" in ran.stdout
    (root / "train.py").write_text(PICKLED)  # the last arguments are those of another module
    (root / "manifests/net.toml").unlink()
    ran = run_exporter(root, *command, code=ExitCode.OK)
    text = (root / "manifests/models/net-2.py").read_text()
    assert "Reason: the arguments of Words do not give the exported model." in text
    assert "return Words('sum', width=6)" in text


def test_an_untrained_model_of_a_script_that_trains_has_no_captured_weights(root: Path) -> None:
    """The weights of another model are no proof that these are trained."""
    other = "other = Net(lambda x: x)\nother.layer = nn.Linear(WIDTH, 5)\n"
    text = TRAINING.replace("SAVE", other).replace("export(model,", "export(other,")
    (root / "train.py").write_text(text)
    (root / "helpers.py").write_text("from torch.nn import Identity as Scale\n")
    command = ("record", "--yes", "--", sys.executable, "train.py")
    ran = run_exporter(root, *command, code=ExitCode.RED)
    assert "other weights than the script's, which no file has" in ran.stderr
    last = ran.stdout.splitlines()[-1]
    step = "move the class, or a function that builds the model, to a module of its own"
    assert last.startswith("0 new entries, 1 missing; next: Net: "), last
    assert step in last
    assert not (root / "manifests").exists()


WEAK = """
import torch
from torch import nn


class Weak(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return 0.5 + self.linear(x) * 1e-9


model = Weak()
torch.save(model.state_dict(), "weak.pt")
torch.onnx.export(model, (torch.zeros(2, 4),), "weak.onnx", opset_version=17, dynamo=False)
"""


def test_the_last_line_names_each_outcome(root: Path) -> None:
    (root / "weak.py").write_text(WEAK)
    ran = run_exporter(root, "record", "--yes", "--", sys.executable, "weak.py", code=1)
    last = ran.stdout.splitlines()[-1]
    assert last == "1 new entry, 1 inconclusive; next: `exporter init`", ran.stdout + ran.stderr
