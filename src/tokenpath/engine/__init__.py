"""The schedulers that people run, and their KV block pools: exact, pure, without clock or chance."""
