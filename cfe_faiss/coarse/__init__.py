"""Which lists a query looks into."""
