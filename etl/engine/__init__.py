"""Where tasks run: Dask clusters behind one seam. Specs go in, small results come out."""
