"""Search engines: exact or within the probed lists, single or batched queries."""
