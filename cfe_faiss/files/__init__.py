"""Index files."""
