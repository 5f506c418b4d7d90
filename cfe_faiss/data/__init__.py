"""Data of a user, a table for example, as columns, classes, ids and vectors."""
