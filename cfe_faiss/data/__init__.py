"""Tables, roles, classes, models and encodings: from what a user has to what the engine takes."""
