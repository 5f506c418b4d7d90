"""Rows as FAISS keeps them: where they lie, how they are coded, and how they are found by id."""
