"""The commands of the packages in `exporter/tools/`: they parse, call and print."""
