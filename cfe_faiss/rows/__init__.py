"""Rows in FAISS's storage: addresses, codecs, and the map from ids to rows."""
