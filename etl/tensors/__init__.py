"""Datasets on disk: what is written, how it becomes visible, and how it is opened again."""
