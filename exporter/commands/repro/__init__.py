"""The command `repro`: a folder with a script that reproduces a failure without this tool."""
