"""The measurements of a file that passes."""

from __future__ import annotations

from typing import Literal

Measure = Literal["latency", "load", "memory"]
