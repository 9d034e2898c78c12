"""Models as such: what an architecture is, where one is read from, and how each backend says it."""
