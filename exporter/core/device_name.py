"""The name of a device, which may have a suffix: another environment delivers its results."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

#: Between the device and its suffix.
SEPARATOR = "@"
#: The suffix in patterns for devices without one. No environment has this name.
CURRENT = "current"


class DeviceName(str):
    """A device and its suffix; stored as `cpu`, or as `cpu@SUFFIX`."""

    __slots__ = ()

    @classmethod
    def build(cls, base: str, suffix: str) -> DeviceName:
        return cls(f"{base}{SEPARATOR}{suffix}" if suffix else base)

    @property
    def base(self) -> DeviceName:
        return DeviceName(self.partition(SEPARATOR)[0])

    @property
    def suffix(self) -> str:
        """The environment that delivers its results, or "" for the current one."""
        return self.partition(SEPARATOR)[2]

    @property
    def suffix_pattern(self) -> str:
        """The suffix as patterns have it: `current` if there is none."""
        return self.suffix or CURRENT

    def matches(self, pattern: str) -> bool:
        """Return whether a pattern matches; one without `@` matches all suffixes."""
        base, separator, suffix = pattern.partition(SEPARATOR)
        name = self.suffix_pattern if suffix == CURRENT else self.suffix
        is_inside = not separator or (bool(name) and fnmatchcase(name, suffix))
        return is_inside and fnmatchcase(self.base, base)

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Validate and store it as text."""
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())
