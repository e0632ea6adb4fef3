"""The part of a model that one run executes, and the numbers near which its branches change."""

from __future__ import annotations

import dis
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import torch

from exporter.worker.dependencies.source_files import find_model_file

#: The largest number in a model that is taken for a size.
_LARGEST_CONSTANT = 1 << 16


@dataclass(slots=True)
class ModelPath:
    """The part of a model that one run executes."""

    root: Path
    instructions: set[tuple[CodeType, int]] = field(default_factory=set)
    order: int = 0
    """A hash of the instructions in their order, and of the shapes of the outputs."""
    constants: set[int] = field(default_factory=set)
    """Whole numbers in the functions and modules: branches change near them."""
    fractions: set[float] = field(default_factory=set)
    """Other numbers there."""
    has_failed: bool = False

    def enter(self, frame: FrameType) -> bool:
        """Follow a function of the model; functions of libraries are not followed."""
        if not find_model_file(frame.f_code.co_filename, self.root):
            return False
        owner, read = frame.f_locals.get("self"), frozenset(frame.f_code.co_names)
        attributes = vars(owner) if isinstance(owner, torch.nn.Module) else {}
        values = [*frame.f_code.co_consts, *attributes.values()]
        values += [frame.f_globals.get(name) for name in read]
        # Numbers that the function reads from objects such as a configuration.
        for each in (*attributes.values(), *frame.f_locals.values()):
            if not isinstance(each, torch.nn.Module | torch.Tensor):
                known = getattr(each, "__dict__", {})
                values += [known[name] for name in read if name in known]
        numbers = (each for each in values if type(each) is int)
        self.constants.update(each for each in numbers if 1 < each <= _LARGEST_CONSTANT)
        self.fractions.update(each for each in values if type(each) is float)
        return True

    def add(self, code: CodeType, offset: int) -> None:
        """Add the instruction that a function of the model executes next."""
        self.instructions.add((code, offset))
        self.order = hash((self.order, id(code), offset))

    @property
    def has_branch(self) -> bool:
        """Whether a function of the model has a condition."""
        functions = {code for code, _ in self.instructions}
        names = {each.opname for code in functions for each in dis.get_instructions(code)}
        return any("_IF_" in name and "NONE" not in name for name in names)
