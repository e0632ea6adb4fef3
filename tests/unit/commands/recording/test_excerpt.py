"""The statements of a script that define its model are copied; those that work are not."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.commands.recording.excerpt import Excerpt, NoExcerpt, Script

SCRIPT = '''\
from __future__ import annotations
import os, math
import torch.nn as nn
from .parts import Scale
try:
    import fast
except ImportError:
    fast = None

# The width of a layer.
WIDTH = 8 * 2
CLASSES = 5
UNUSED = open("data.csv")


def helper(x, fast_path=fast):
    WORK = x
    return WORK * math.pi


@nn.compiled
class Net(nn.Module):
    """Has WIDTH."""

    def forward(self, x):
        return helper(self.layer(x), WIDTH)


train = 3
WORK = Net(train)
model = Net()
model.head = nn.Linear(WIDTH, CLASSES)
model = fit(model)
for step in range(9):
    loss = model(step).backward()
torch.save(model, "x.pt")
torch.onnx.export(
    model,
    (),
)
'''


def read(path: Path, text: str, package: str = "pkg") -> Script:
    (path / "train.py").write_text(text)
    return Script(path / "train.py", package)


def list_builds(path: Path, text: str, line: int = 0) -> list[Excerpt]:
    line = line or next(n for n, x in enumerate(text.splitlines(), 1) if "onnx.export" in x)
    return list(read(path, text).list_builds(line))


def test_the_definitions_of_an_expression_are_copied_in_order(tmp_path: Path) -> None:
    found = read(tmp_path, SCRIPT).quote(
        "train.Net(train.helper, 'train.Net',\n  b=train.WIDTH)", "train"
    )
    assert found.result == "Net(helper, 'train.Net',\n  b=WIDTH)"
    assert found.imports == (
        "from __future__ import annotations",
        "import os, math",
        "import torch.nn as nn",
    )
    names = [ast.unparse(ast.parse(each)).split("\n")[0] for each in found.definitions]
    assert names[0] == "try:"
    assert names[1:3] == ["WIDTH = 8 * 2", "def helper(x, fast_path=fast):"]
    assert found.definitions[1] == "# The width of a layer.\nWIDTH = 8 * 2"
    assert found.definitions[3].startswith("@nn.compiled\nclass Net")
    assert len(found.definitions) == 4


def test_the_statements_of_the_model_are_copied_and_earlier_ones_follow(tmp_path: Path) -> None:
    text = SCRIPT.replace("model = fit(model)", "model = nn.fuse(model)")
    first, second, *_ = list_builds(tmp_path, text)
    assert first.body == ("model = Net()", "model.head = nn.Linear(WIDTH, CLASSES)")
    assert first.result == "nn.fuse(model)"
    assert (second.body, second.result) == (first.body, "model")
    joined = "\n".join(first.definitions)
    assert "CLASSES = 5" in joined
    assert "UNUSED" not in joined
    assert "WORK = Net" not in joined


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m = Net(parser.parse_args().w)\ntorch.onnx.export(m, ())", "builds it from parse_args"),
        ("m = torch.load('m.pt')\ntorch.onnx.export(m, ())", "read from a file"),
        ("def f(m):\n    torch.onnx.export(m, ())", "`f` gets the model"),
        ("x = 1\nsave('onnx.export')", "no call of `export`"),
        ("W = 1\ndef f(): return W\nW = 2\ntorch.onnx.export(f(), ())", "changes W"),
        ("W = {}\ndef f(): return W\nW['a'] = 2\ntorch.onnx.export(f(), ())", "changes W"),
        (
            "W = 1\ndef f(): return W\ndef g():\n  global W\n  W = 2\ntorch.onnx.export(f(), ())",
            "changes W",
        ),
        ("class N: pass\nN.forward = f\ntorch.onnx.export(N(), ())", "changes N"),
        ("from .parts import Net\ntorch.onnx.export(Net(), ())", "is a relative import"),
        (
            "for w in (1, 2): pass\ndef make(): return w\ntorch.onnx.export(make(), ())",
            "computes w",
        ),
    ],
)
def test_what_cannot_be_copied_has_a_reason(tmp_path: Path, text: str, reason: str) -> None:
    script = read(tmp_path, text, package="")
    line = text.count("\n") + 1
    with pytest.raises(NoExcerpt, match=reason):
        list(script.list_builds(line))


def test_a_function_without_parameters_has_the_model(tmp_path: Path) -> None:
    text = (
        "import nets\n\ndef main():\n    from nets import act\n    text = '''a\n  b'''\n"
        "    with x:\n        net = nets.Net(act, text)\n        torch.onnx.export(net, ())\n"
    )
    (found,) = list_builds(tmp_path, text)
    assert found.body == ("from nets import act", "text = 'a\\n  b'")
    assert found.result == "nets.Net(act, text)"
    assert found.imports == ("import nets",)


def test_relative_imports_are_those_of_the_package(tmp_path: Path) -> None:
    text = "from ..parts import A\nfrom . import b\ntorch.onnx.export(A(b), ())"
    (found,) = read(tmp_path, text, package="pkg.inner").list_builds(3)
    assert found.imports == ("from pkg.parts import A", "from pkg.inner import b")


@pytest.mark.parametrize("edit", [str, lambda text: text.replace("    ", "\t")])
def test_the_copy_of_a_text_is_the_same_code(tmp_path: Path, edit: Callable[[str], str]) -> None:
    text = edit(SCRIPT)
    script = read(tmp_path, text)
    found = script.quote("train.Net()", "train")
    own = {ast.dump(each) for each in ast.parse(text).body}
    assert {ast.dump(*ast.parse(each).body) for each in found.definitions} <= own
