"""Checks of arguments, threads, temporary files, texts: used everywhere, knowing nothing of indexes."""
