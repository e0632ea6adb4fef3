"""Models that change themselves, their file or PyTorch's settings while they are used.

Each model has one change and one moment: `load`, `call`, `export` (a trace or a capture), `trace`,
or `any` call, and `any_once` for the first one only. The source is a text, because each project
needs its own copy.
"""

from __future__ import annotations

from itertools import product

MODELS = '''
import functools
import gc
import os
import random
import sys
import warnings

import numpy as np
import torch
from torch import nn

SETTINGS = {"factor": 1.0}
VALUES = [1.0]
COUNT = 0


@functools.cache
def remember(key):
    return float(1 + COUNT)


def make_counter():
    count = 1.0

    def read():
        return count

    def increase():
        nonlocal count
        count += 1.0

    return read, increase


READ, INCREASE = make_counter()


def helper(x):
    return x


class Changing(nn.Module):
    """Changes something at one moment, so that a later call, trace or capture differs."""

    factor = 1.0
    shared = [1.0]

    def __init__(self, change, moment):
        super().__init__()
        self.change = getattr(self, change)
        self.moment = moment
        self.width = 4
        self.items = [1.0]
        self.table = {"a": 1.0}
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        self.register_buffer("offset", torch.zeros(4))
        self.has_changed = False
        if moment == "load":
            self.change(torch.ones(2, 4))

    def forward(self, x):
        y = self.inner(x) * self.factor * SETTINGS["factor"] * (torch.zeros(4) + 1) / self.width
        y = y * self.items[-1] * self.table["a"] * VALUES[-1] * self.shared[-1]
        y = y * (float(os.environ.get("CHANGING_FACTOR", "1")) * READ())
        y = helper(torch.relu(y + self.offset))
        if self.moment != "load" and self.is_moment():
            self.change(x)
        return y

    def is_moment(self):
        moment, _, once = self.moment.partition("_")
        if once and self.has_changed:
            return False
        is_export = torch.jit.is_tracing() or torch.compiler.is_exporting()
        moments = {"call": not is_export, "export": is_export, "any": True}
        moments["trace"] = torch.jit.is_tracing()
        if moments[moment] and once:
            self.has_changed = True
        return moments[moment]

    def attribute(self, x):
        self.width = self.width + 1

    def traced_attribute(self, x):
        self.width = torch.tensor(x.shape[1]) + x.sum().int() * 0

    def list_item(self, x):
        self.items.append(self.items[-1] + 1)

    def dict_item(self, x):
        self.table["a"] += 1

    def class_attribute(self, x):
        Changing.factor += 1

    def class_list(self, x):
        self.shared.append(self.shared[-1] + 1)

    def global_variable(self, x):
        SETTINGS["factor"] += 1

    def global_list(self, x):
        VALUES.append(VALUES[-1] + 1)

    def cache(self, x):
        global COUNT
        COUNT += 1
        remember.cache_clear()
        SETTINGS["factor"] = remember(0)

    def closure(self, x):
        INCREASE()

    def function(self, x):
        global helper
        helper = torch.tanh

    def torch_function(self, x):
        torch.relu = torch.sigmoid

    def method(self, x):
        self.inner.forward = lambda y: y

    def class_method(self, x):
        Changing.is_moment = lambda self: False

    def hook(self, x):
        self.inner.register_forward_hook(lambda module, args, output: output * 2)

    def global_hook(self, x):
        nn.modules.module.register_module_forward_hook(lambda module, args, output: output * 2)

    def new_buffer(self, x):
        self.register_buffer(f"extra{len(self._buffers)}", torch.ones(1))

    def new_parameter(self, x):
        self.register_parameter("extra", nn.Parameter(torch.ones(1)))

    def buffer(self, x):
        self.offset = torch.ones(4)

    def buffer_in_place(self, x):
        self.offset.add_(1)

    def weight(self, x):
        self.inner[0].weight.data += 1

    def no_grad_weight(self, x):
        self.inner[0].weight.requires_grad_(False)

    def dtype(self, x):
        self.double()

    def device(self, x):
        self.to("meta")

    def mode(self, x):
        self.train()

    def submodule(self, x):
        self.inner = nn.Identity()

    def submodule_item(self, x):
        self.inner[0] = nn.Linear(4, 4, bias=False)

    def default_dtype(self, x):
        torch.set_default_dtype(torch.float64)

    def default_device(self, x):
        torch.set_default_device("cpu")

    def grad(self, x):
        torch.set_grad_enabled(True)

    def no_grad(self, x):
        torch.set_grad_enabled(False)

    def deterministic(self, x):
        torch.use_deterministic_algorithms(True)

    def threads(self, x):
        torch.set_num_threads(2)

    def threads_and_global(self, x):
        torch.set_num_threads(2)
        torch.ones(100_000).exp().sum()
        SETTINGS["factor"] += 1

    def seed(self, x):
        torch.manual_seed(random.randrange(5))
        np.random.seed(3)
        random.seed(4)

    def fast_path(self, x):
        torch.backends.mha.set_fastpath_enabled(True)

    def backends(self, x):
        torch.backends.mkldnn.enabled = False

    def flush_denormal(self, x):
        torch.set_flush_denormal(True)

    def precision(self, x):
        torch.set_float32_matmul_precision("medium")

    def warnings_filter(self, x):
        warnings.simplefilter("error")

    def environment(self, x):
        os.environ["CHANGING_FACTOR"] = str(float(os.environ.get("CHANGING_FACTOR", "1")) + 1)

    def folder(self, x):
        os.chdir("/")

    def search_path(self, x):
        sys.path.insert(0, "/nowhere")

    def recursion(self, x):
        sys.setrecursionlimit(900)

    def garbage(self, x):
        gc.disable()

    def print_options(self, x):
        torch.set_printoptions(precision=1)
        np.set_printoptions(precision=1)

    def module_table(self, x):
        sys.modules.pop("onnx.helper", None)

    def several(self, x):
        self.traced_attribute(x)
        self.class_attribute(x)
        self.global_variable(x)
        self.hook(x)
        self.mode(x)
        self.grad(x)
        self.threads(x)
        self.deterministic(x)

    def weights(self, x):
        self.buffer(x)
        self.weight(x)
        self.default_dtype(x)

    def text(self, x):
        print("a line", flush=True)
        warnings.warn("a warning", stacklevel=1)
'''
CHANGES = tuple(
    line.split("def ")[1].split("(")[0]
    for line in MODELS.partition("return moments[moment]")[2].splitlines()
    if line.startswith("    def ")
)
MOMENTS = ("load", "call", "export", "any", "any_once")
#: All pairs of a change and a moment.
PAIRS = tuple(product(CHANGES, MOMENTS))
