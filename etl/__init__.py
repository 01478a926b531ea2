"""cuETL: one consistent snapshot of a store, read in parallel, published as tensors or Parquet in one atomic step."""

__version__ = "0.1.0.dev0"
