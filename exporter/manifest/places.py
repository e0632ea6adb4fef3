"""Where every input and constant goes in the model's call: defaults filled in, clashes found.

In: the `at` keys of an entry. Out: an `at` for each input.
"""

from __future__ import annotations

from exporter.manifest.calls import conflicts, next_position, parse_at
from exporter.manifest.layers import Effective
from exporter.manifest.wording import KeyPath, key_text


def resolved_places(model: Effective) -> tuple[str, ...]:
    """The place of each input; without `at` the next position of `args` that is free."""
    constants = model.settings.constants if model.has("constants") else ()
    fixed = [parse_at(constant.at) for constant in constants]
    taken = frozenset(step for root, (step, *_) in fixed if isinstance(step, int))
    places: list[str] = []
    for table in model.settings.inputs:
        parsed = [parse_at(place) for place in places]
        used = [steps for root, steps in parsed if root == "args"]
        places.append(table.at or f"args[{next_position(used, taken)}]")
    if model.has("constants"):
        _refuse_conflicts(model, places)
    return tuple(places)


def _refuse_conflicts(model: Effective, places: list[str]) -> None:
    owners: list[KeyPath] = [("inputs", index) for index in range(len(places))]
    owners += [("constants", index) for index in range(len(model.settings.constants))]
    texts = places + [constant.at for constant in model.settings.constants]
    found = conflicts([(text, key_text(owner)) for text, owner in zip(texts, owners, strict=True)])
    for index, message in sorted(found.items()):
        model.refuse((*owners[index], "at"), message)
