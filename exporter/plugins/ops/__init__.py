"""The command `ops`: the operators of the models, and those that an exporter cannot convert."""
