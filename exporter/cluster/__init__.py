"""Run jobs on the hosts of a Dask cluster, each by the local engine of its host."""
