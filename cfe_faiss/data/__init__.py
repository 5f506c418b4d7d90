"""What a user has, a table for example, as columns, classes, ids and vectors."""
