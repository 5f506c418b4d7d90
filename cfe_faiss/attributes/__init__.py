"""Attributes, classes and constraints of the rows of a table or graph."""
