"""The command `ops`: the operators of a model that an exporter lacks."""
