"""The ground: values and errors that every layer shares."""
