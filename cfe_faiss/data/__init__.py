"""What users have, as columns, roles, classes, vectors and predictions with one meaning."""
