"""Evidence indexes as FAISS subclasses: exact search and inverted files."""
