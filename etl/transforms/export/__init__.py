"""A fit as an ONNX model, for processes without cuETL: built from the plan's own steps and figures, proved, or refused.

The plan remains the source of truth. A model that does not give what the plan gives is not written.
"""
