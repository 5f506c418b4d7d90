"""Numbers of the sections; sections.toml has their texts and their order."""
