"""One package a backend: how to start it (adapter), what runs in its image (worker), what it takes (arguments.json)."""
