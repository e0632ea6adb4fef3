"""The observed calls of constructors; the observer of a process stores them before torch exists."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConstructorCall(NamedTuple):
    """The call of a module's constructor."""

    module: Any
    """A weak reference to the module, because another object can have its `id` later."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
