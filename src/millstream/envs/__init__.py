"""The world: environments as vectors of slots behind the `Env` port."""
