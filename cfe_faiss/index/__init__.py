"""Evidence indexes: exact and inverted file, as FAISS indexes."""
