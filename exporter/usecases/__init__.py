"""The use cases behind the commands: plan, export, gate, reports and acceptance.

`exporter.api` is the public interface of this package. Nothing here prints, exits or reads
environment variables.
"""
