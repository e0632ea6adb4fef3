"""The JSON Schema of `build/results.json`, from the classes that write it.

In: `RunRecord` and the texts under its fields. Out: `docs/results.schema.json`, by
`python -m exporter.report`. Programs that read the results check them with it; the number `format`
is raised with every change that an older reader would misunderstand.
"""

from __future__ import annotations

import json
from typing import Any

from exporter.manifest.schema.json_schema import field_texts
from exporter.records import record
from exporter.records.record import RunRecord

FILE = "results.schema.json"


def schema() -> dict[str, Any]:
    """The schema, in the dialect of JSON Schema 2020-12."""
    found = RunRecord.model_json_schema(mode="serialization")
    texts = field_texts(record)
    for name, node in {**found["$defs"], RunRecord.__name__: found}.items():
        node.pop("title", None)
        if "description" in node:
            node["description"] = " ".join(node["description"].split())
        for key, each in node.get("properties", {}).items():
            each.pop("title", None)
            if text := texts[name].get(key):
                each["description"] = text
    seal = {"type": "string", "description": "Of all that follows: a changed file is refused."}
    found["properties"] = {"sha256": seal, **found["properties"]}
    found["required"] = ["sha256", *found["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def schema_text() -> str:
    """The schema as the committed file has it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
