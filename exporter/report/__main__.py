"""`python -m exporter.report`: write the committed schema of the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from exporter.core.files import write_text
from exporter.manifest.schema.documents import read_field_texts
from exporter.records import record
from exporter.records.record import RunRecord

FILE = "results.schema.json"


def build_schema() -> dict[str, Any]:
    """Return the schema in the dialect of JSON Schema 2020-12."""
    schema = RunRecord.model_json_schema(mode="serialization")
    texts = {**read_field_texts(record), **read_field_texts(record)}
    for name, node in {**schema["$defs"], RunRecord.__name__: schema}.items():
        node.pop("title", None)
        if "description" in node:
            node["description"] = " ".join(node["description"].split())
        for key, field in node.get("properties", {}).items():
            field.pop("title", None)
            if text := texts[name].get(key):
                field["description"] = text
    checksum = {"type": "string", "description": "Hash of the other fields; detects changes."}
    schema["properties"] = {"sha256": checksum, **schema["properties"]}
    schema["required"] = ["sha256", *schema["required"]]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def format_schema() -> str:
    """Return the text of the committed file."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"


def main(docs: Path = Path("docs")) -> None:
    """Write the schema to the folder."""
    write_text(docs / FILE, format_schema())


if __name__ == "__main__":
    main()
