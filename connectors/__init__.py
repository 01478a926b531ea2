"""Connectors: one module or folder per store, found by URL scheme. Importing this package imports none of them."""
