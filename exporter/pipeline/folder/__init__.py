"""Read and write the build folder: places, records, recovery and garbage."""
