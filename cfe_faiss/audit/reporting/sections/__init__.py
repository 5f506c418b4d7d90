"""Sections of the report: a function returns the numbers of each, its template has the words."""
