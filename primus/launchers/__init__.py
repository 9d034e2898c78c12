"""How a job is started: each launcher is a pure function to a Command, and one function that acts on it."""
