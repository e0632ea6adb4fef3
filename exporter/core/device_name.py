"""The name of a device, which may have the packages of a toolchain."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

#: Between the device and the toolchain.
SEPARATOR = "@"
#: The name of the project's own packages in conditions. No toolchain has this name.
CURRENT_TOOLCHAIN = "current"


class DeviceName(str):
    """A device and its toolchain; stored as `cpu`, or as `cpu@TOOLCHAIN`."""

    __slots__ = ()

    @classmethod
    def build(cls, base: str, toolchain: str) -> DeviceName:
        """Return the name of a device in a toolchain, or without one."""
        return cls(f"{base}{SEPARATOR}{toolchain}" if toolchain else base)

    @property
    def base(self) -> DeviceName:
        """The device without its toolchain."""
        return DeviceName(self.partition(SEPARATOR)[0])

    @property
    def toolchain(self) -> str:
        """The toolchain, or "" for the project's own packages."""
        return self.partition(SEPARATOR)[2]

    @property
    def packages(self) -> str:
        """The toolchain as conditions name it: `current` for the project's own packages."""
        return self.toolchain or CURRENT_TOOLCHAIN

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern matches; one without `@` matches in all toolchains."""
        base, separator, toolchain = pattern.partition(SEPARATOR)
        name = self.packages if toolchain == CURRENT_TOOLCHAIN else self.toolchain
        is_inside = not separator or (bool(name) and fnmatchcase(name, toolchain))
        return is_inside and fnmatchcase(self.base, base)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Validate and store it as text."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())
