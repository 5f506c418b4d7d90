"""Checks of arguments, threads, temporary files and texts, for all other packages."""
