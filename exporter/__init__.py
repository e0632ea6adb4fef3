"""Build every ONNX file that a manifest promises, and prove each promise on the file.

`program` has the way from a manifest to the tables on one screen; read it first. Its steps, in the
order of the data:

    manifest    entries with their values, or each problem with its line
    planning    the selected cells
    pipeline    decide which cells run, run their jobs, collect their records
    cache       whether a record is up to date
    worker      load, reference, capture, convert, write, prove
    checks      the promises of a file, one by one
    runtimes    a file in a runtime
    records     results and the accepted baseline
    report      tables and pages
    gate        the difference from the baseline
    api, cli    the way as functions and as commands

All of them use `jobs`, the values between parent and worker, `virtual_environments`, `processes`
and `core`. `export_options` chooses the engine and the store of an export: `cluster` runs its jobs
on other hosts, and `store` has the results of other checkouts. `commands` has the parts that only
one command needs.
"""
