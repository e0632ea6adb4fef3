"""Write `docs/traps.md`."""

from tests.traps.table import write

write()
