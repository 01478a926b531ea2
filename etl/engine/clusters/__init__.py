"""One module per way to come by a Dask cluster, each exporting `start`."""
