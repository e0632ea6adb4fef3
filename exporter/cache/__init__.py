"""Decide whether stored results are up to date.

A record contains its fingerprint (`fingerprint`): the hashes of its manifest entry, its checks,
its device and the tools. The worker adds the hashes of all loaded files and packages. Five files on
disk use these values. Each has its own purpose, and none replaces another:

| file | question | contains | module |
|---|---|---|---|
| `build/<model>/records/*` | Is the result of a cell valid? | fingerprints | `staleness` |
| `build/stamps.json` | Has a file its recorded hash? | hashes by `stat` | `artifact_integrity` |
| `build/untouched.json` | Can an export skip all checks? | `stat` of all inputs | `noop_snapshot` |
| `build/reports.json` | Are the pages up to date? | one key | `exporter.report` |
| `<store>/entries/*` | Is there a copy of the result? | records and file hashes | `store` |

The records decide. `stamps.json` saves the time of a hash, `untouched.json` the import of the
project, `reports.json` the rendering. If one of the three is missing or damaged, the next export
does the full work again. A restored store entry is validated like a record of the build folder.
"""
