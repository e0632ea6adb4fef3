"""After random edits of random code, a result that counts as current equals that of a new run.

Each run is a fork that imports a random project and calls it, with the trackers of a real worker,
and without torch. The session `faults` is the long form: it sets `FAULTS=long`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from exporter.cache.states import read_source_state
from exporter.core.import_object import ignore_project_bytecode, load_attribute
from exporter.worker.dependencies.executed_code import EXECUTED
from exporter.worker.dependencies.opened_files import OpenedFiles
from exporter.worker.dependencies.source_files import JobStart, digest_dependencies
from tests.faults import campaign

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(sys.platform != "linux", reason="Linux forks"),
]

IS_LONG = os.environ.get("FAULTS") == "long"
PROJECTS, EDITS = (40, 50) if IS_LONG else (2, 12)

#: Definitions with a number N, a name A, the calls X and Y of other functions and a module F.
TEXT = r'''
## function
def A(x):
    return x * N + X
## branch
def A(x):
    if x % 2:
        return X + N
    return Y
## default
def A(x, by=N):
    return x + by + X
## keyword
def A(x, *, by=N, **others):
    return x + by
## nested
def A(x):
    def inner(y):
        return y + N
    return inner(x) + X
## unused_nested
def A(x):
    def inner(y):
        return y + N
    return x if inner else X
## lambda
A = lambda x: x - N
## generator
def A(x):
    def items():
        yield N
        yield X
    return sum(items())
## comprehension
def A(x):
    return sum(i * N for i in range(x % 4))
## cached
import functools
@functools.cache
def A(x):
    return X + N
## wrapped
def make_A(by):
    def wrap(f):
        def call(x):
            return f(x) + by
        return call
    return wrap
@make_A(N)
def A(x):
    return X
## method
class K_A:
    size = N
    def run(self, x):
        return x + self.size
    def other(self, x):
        return x - N
def A(x):
    return K_A().run(x) + X
## inherited
class B_A:
    def run(self, x):
        return x * N
class K_A(B_A):
    def run(self, x):
        return super().run(x) + 1
def A(x):
    return K_A().run(x)
## property
class K_A:
    @property
    def value(self):
        return N
    @value.setter
    def value(self, to):
        self.kept = to + N
def A(x):
    return K_A().value + X
## getattr
class K_A:
    def __getattr__(self, name):
        return len(name) + N
def A(x):
    return K_A().some + X
## metaclass
class M_A(type):
    def __new__(meta, name, bases, space):
        space['size'] = N
        return super().__new__(meta, name, bases, space)
class K_A(metaclass=M_A):
    pass
def A(x):
    return K_A.size + X
## dataclass
import dataclasses
@dataclasses.dataclass
class K_A:
    a: int = N
    def twice(self):
        return self.a * 2
def A(x):
    return K_A().twice() + X
## global
STATE_A = N
def A(x):
    return x + STATE_A
## set_global
def A(x):
    global SEEN
    SEEN = N
    return X + SEEN
## patch
import F
F.PATCHED = lambda x: x + N
def A(x):
    return F.PATCHED(x)
## replace
def A(x):
    return x + N
def other_A(x):
    return A(x) - N
if N % 2:
    A.__code__ = other_A.__code__.replace(co_name='A') if N % 3 == 0 else A.__code__
## source
import inspect
def read_A(x):
    return N  # number N
def A(x):
    return sum(map(ord, inspect.getsource(read_A))) + X
## text
def A(x):
    with open(__file__) as file:
        return len(file.read()) + N
## loader
def A(x):
    return len(__loader__.get_source(__name__)) + N
## bytecode
def code_A(x):
    return x + N
def A(x):
    return hash(code_A.__code__.co_consts) % 99
## copied
def code_A(x):
    return x + N
def A(x):
    import types
    copy = types.FunctionType(code_A.__code__.replace(co_name='copy'), {})
    return copy(x) + X
## line
import sys
def A(x):
    return sys._getframe().f_lineno + N
## doc
def doc_A():
    """Text N"""
def A(x):
    return len(doc_A.__doc__) + sum(map(ord, doc_A.__doc__))
## decorator_doc
def count_A(f):
    words = len(getattr(f, "__do" + "c__") or "")
    return lambda x: f(x) + words
@count_A
def A(x):
    """Text of A."""
    return X + N
## thread
import threading
def work_A(kept):
    kept.append(N)
def A(x):
    kept = []
    thread = threading.Thread(target=work_A, args=(kept,))
    thread.start()
    thread.join()
    return kept[0] + X
## fork
import os
def work_A():
    return N % 100
def A(x):
    pid = os.fork()
    if pid == 0:
        os._exit(work_A())
    return os.waitpid(pid, 0)[1] + X
## child
import subprocess, sys
CODE_A = "import sys; sys.path.insert(0, sys.argv[1]); import {0}; print({0}.far_A())"
def far_A():
    return N
def A(x):
    if __name__ == "__main__":
        return x
    from pathlib import Path
    words = [sys.executable, "-c", CODE_A.format(__name__), str(Path(__file__).parent)]
    return int(subprocess.run(words, capture_output=True, check=True).stdout) + X
## rest
import inspect
def work_A(*args_N, **words_N):
    return N
def A(x):
    return len(str(inspect.signature(work_A))) + X
## exec
def A(x):
    space = {}
    exec('def made(x): return x + N', space)
    return space['made'](x)
## run_path
import runpy
def far_A():
    return N
def A(x):
    return runpy.run_path(__file__)['far_A']() if x % 2 and __name__ != '<run_path>' else far_A()
## coroutine
async def work_A(x):
    return x + N
def A(x):
    try:
        work_A(x).send(None)
    except StopIteration as end:
        return end.value
## unstarted
def items_A():
    yield N
def A(x):
    return X if items_A() else 0
## kind
import inspect
def work_A(x):
    return N
def A(x):
    return inspect.isgeneratorfunction(work_A) + X
## signature
import inspect
def work_A(x, y=N):
    return N
def A(x):
    return len(str(inspect.signature(work_A)))
## hints
import typing
def work_A(x: 'int', y: typing.Literal[N] = 1):
    return N
def A(x):
    hints = typing.get_type_hints(work_A)
    return hints['y'].__args__[0] + X
## names
def A(x):
    return len([name for name in sorted(globals()) if not name.startswith('__')]) + N
## lazy
def A(x):
    import F as other
    return len(other.__name__) + X
## star
from F import *
def A(x):
    return x + N
## raise
def A(x):
    if x % 5 == 3:
        raise ValueError(N)
    return X
## fallback
def A(x):
    try:
        return X
    except ValueError as error:
        return error.args[0]
## data
from pathlib import Path
def A(x):
    return int(Path(__file__).with_name('data.txt').read_text()) + N
## singledispatch
import functools
@functools.singledispatch
def A(x):
    return -1
@A.register
def _(x: int):
    return x + N
@A.register
def _(x: str):
    return N
## delete
class K_A:
    def __del__(self):
        KEPT_A.append(N)
KEPT_A = []
def A(x):
    K_A()
    return sum(KEPT_A) + X
## pickle
import pickle
class K_A:
    def __reduce__(self):
        return restore_A, (1,)
def restore_A(y):
    return y + N
def A(x):
    return pickle.loads(pickle.dumps(K_A())) + X
## conditional
if N % 2:
    def A(x):
        return x + N
else:
    def A(x):
        return x - N
## assertion
def A(x):
    assert x != N, 'text'
    return X
'''
KINDS = {
    section.partition("\n")[0]: section.partition("\n")[2].rstrip("\n")
    for section in TEXT.split("## ")[1:]
}
#: What Python reads and `ast` or `repr` cannot: then the text of the module counts.
for name, value in {"long": "N" + " + 1" * 1500, "huge": "N + 0x" + "f" * 5000}.items():
    KINDS[name] = f"BIG_A = {value}\ndef A(x):\n    return x + BIG_A % 97 + X"
    KINDS[f"{name}_in_function"] = f"def A(x):\n    return x + ({value}) % 97 + X"


@dataclasses.dataclass
class Item:
    kind: str
    name: str
    number: int
    calls: tuple[str, str]
    module: str
    """A module without a dependency on this one, which some kinds import."""
    comment: str = ""
    docstring: str = ""

    def to_text(self) -> str:
        text = KINDS[self.kind]
        for letter, value in zip("XY", self.calls, strict=True):
            text = re.sub(rf"\b{letter}\b", value, text)
        text = re.sub(r"(?<![A-Za-z0-9])N\b", str(self.number), text)
        text = re.sub(r"\bF\b", self.module, text)
        text = re.sub(r"(?<![A-Za-z0-9])A\b", self.name, text)  # also in names such as `work_A`
        if self.docstring and self.kind in ("function", "branch", "default"):
            head, _, body = text.partition("\n")
            text = f'{head}\n    """{self.docstring}"""\n{body}'
        return f"{self.comment}{text}\n"


class RandomProject:
    """Modules m0, m1 and so on, whose functions call those of modules with a lower number."""

    def __init__(self, root: Path, draw: random.Random) -> None:
        self.root, self.draw = root, draw
        self.modules: dict[str, list[Item]] = {}
        self.data = 5
        #: Some kinds make the texts of all modules count, so each project has other ones.
        self.kinds = draw.sample(list(KINDS), 12) + ["function", "method", "branch"] * 2
        self.count = 0
        for number in range(draw.randint(2, 5)):
            name = f"m{number}"
            self.modules[name] = []
            for _ in range(draw.randint(2, 6)):
                self.add_item(name)

    def add_item(self, module: str, at: int | None = None) -> None:
        earlier = [m for m in self.modules if int(m[1:]) < int(module[1:])]
        items = self.modules[module]
        at = len(items) if at is None else at
        calls = []
        for _ in range(2):
            places = [f"{m}.{i.name}(x + 1)" for m in earlier for i in self.modules[m]]
            places += [f"{item.name}(x + 1)" for item in items[:at]]
            calls.append(self.draw.choice(places) if places and self.draw.random() < 0.8 else "x")
        kinds = [k for k in self.kinds if k not in ("patch", "lazy", "star") or earlier]
        self.count += 1
        item = Item(
            kind=self.draw.choice(kinds),
            name=f"f{self.count}",
            number=self.draw.randint(2, 60),
            calls=(calls[0], calls[1]),
            module=self.draw.choice(earlier) if earlier else "m0",
        )
        items.insert(at, item)

    def write(self) -> None:
        for path in self.root.glob("*.*"):
            path.unlink()
        for name, items in self.modules.items():
            imports = "".join(f"import {m}\n" for m in self.modules if int(m[1:]) < int(name[1:]))
            text = imports + "\n".join(item.to_text() for item in items)
            (self.root / f"{name}.py").write_text(text)
        (self.root / "data.txt").write_text(str(self.data))
        last = list(self.modules)[-1]
        (self.root / "main.py").write_text(
            f"import {last}\n\n\ndef run():\n"
            f"    return [{last}.{self.modules[last][-1].name}(x) for x in (2, 7)]\n"
        )

    def edit(self) -> str:
        draw = self.draw
        module = draw.choice(list(self.modules))
        items = self.modules[module]
        item = draw.choice(items)
        kinds = (
            "number",
            "number",
            "number",
            "comment",
            "docstring",
            "add",
            "swap",
            "kind",
            "data",
            "numbers",
            "call",
        )
        kind = draw.choice(kinds)
        if kind == "number":
            item.number = draw.randint(2, 60)
        elif kind == "comment":
            item.comment = draw.choice(("", "# a comment\n", "\n\n", "# type: ignore\n"))
        elif kind == "docstring":
            item.docstring = draw.choice(("", "A text.", "Another text."))
        elif kind == "add":
            self.add_item(module, draw.randint(0, len(items)))
        elif kind == "swap":
            other = draw.choice(items)
            item.kind, other.kind = other.kind, item.kind
        elif kind == "kind":
            item.kind = draw.choice([k for k in self.kinds if k not in ("patch", "lazy", "star")])
        elif kind == "data":
            self.data = draw.randint(1, 9)
        elif kind == "call":
            item.calls = (item.calls[1], item.calls[0])
        else:
            item.number, items[-1].number = items[-1].number, item.number
        return f"{kind} of {item.kind} {item.name} in {module}"


def run_project(root: Path, job: Path) -> dict[str, Any]:
    """Return the result and the states of its dependencies, from a fork."""
    job.mkdir(exist_ok=True)
    (job / "job").touch()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            report = _run_here(root, job)
            with os.fdopen(writer, "w") as file:
                json.dump(report, file)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    assert text, "the fork ended early"
    return json.loads(text)


def _run_here(root: Path, job: Path) -> dict[str, Any]:
    ignore_project_bytecode()
    sys.path[:] = [each for each in sys.path if "site-packages" in each or "python3" in each]
    start = JobStart.measure(job / "job")
    opened = OpenedFiles(trace=True)
    EXECUTED.watch()
    is_red = False
    with opened.watch():
        try:
            result: Any = load_attribute("main.py:run", root)()
        except Exception as error:  # noqa: BLE001 - random code raises any exception
            result, is_red = f"{type(error).__name__}: {error}", True
    found = digest_dependencies(
        root, start, opened.list_accesses(), ignored=[job], text=None if is_red else ""
    )
    states = {source.file: source.state for source in found.sources}
    return {"result": repr(result), "states": states}


def find_changes(root: Path, states: dict[str, str]) -> list[str]:
    return [name for name, old in states.items() if read_source_state(root / name, old) != old]


@pytest.mark.parametrize("seed", range(PROJECTS))
def test_a_current_result_equals_that_of_a_new_run(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    root, job = tmp_path / "project", tmp_path / "job"
    root.mkdir()
    project = RandomProject(root, draw)
    project.write()
    kept = run_project(root, job)
    counts: Counter[str] = Counter()
    for _ in range(EDITS):
        edits = [project.edit() for _ in range(draw.choice((1, 1, 2)))]
        project.write()
        changes = find_changes(root, kept["states"])
        new = run_project(root, job)
        is_same = kept["result"] == new["result"]
        counts[("current" if not changes else "stale") + ("" if is_same else ", other result")] += 1
        assert changes or is_same, (seed, edits, kept, new)
        if not changes:
            assert kept == new, (seed, edits)
        kept = new
    campaign.print_counts(f"seed {seed}: {EDITS} edits of code: {dict(counts)}")
