"""Text in the formats of the report: markdown, XML, numbers and status marks."""
