"""Documents with string ids, metadata and class names over an evidence index."""
