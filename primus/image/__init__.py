"""Images: their names, what they say about themselves, and building them."""
