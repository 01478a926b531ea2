"""From a wish to a plan: what is read, how it is cut, what is written."""
