"""How is one `config.json` read so that all of its problems are reported at once?"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.errors import Problem

Config = Mapping[str, object]

LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers")


class ConfigReader:
    """Reads one configuration and collects its problems."""

    def __init__(self, config: Config, path: str) -> None:
        self.config = config
        self.problems: list[Problem] = []
        self._prefix = f"{path}." if path else ""
        self.model_type = str(config.get("model_type", ""))

    def report(self, key: str, rule: str) -> None:
        """Adds a problem of a key, unless it is already reported."""
        value = self.config.get(key)
        shown = "" if value is None else repr(value)[:60]
        problem = Problem(path=self._prefix + key, value=shown, rule=rule)
        if problem not in self.problems:
            self.problems.append(problem)

    def has(self, key: str) -> bool:
        """Whether a key is present with a value."""
        return self.config.get(key) is not None

    def whole(self, *keys: str, default: int | None = None) -> int:
        """Returns the integer under the first key that has a value; after a problem, a placeholder."""
        key = next((key for key in keys if self.has(key)), None)
        if key is None:
            if default is None:
                other = f" (or {', '.join(keys[1:])})" if keys[1:] else ""
                self.report(keys[0], f"is missing{other}; a config.json of {self.model_type} has it")
            return 1 if default is None else default
        value = self.config[key]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self.report(key, "must be a whole number of at least 0")
            return 1
        return value

    def truth(self, key: str, *, default: bool) -> bool:
        """Returns the boolean under a key."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.report(key, "must be true or false")
        return bool(value)

    def part(self, key: str) -> ConfigReader:
        """Returns a reader of the mapping under a key, which shares this one's problems; after a problem, it is empty."""
        inner = self.config.get(key)
        if not isinstance(inner, Mapping):
            self.report(key, f"must be a mapping; a config.json of {self.model_type} has one")
        reader = ConfigReader(inner if isinstance(inner, Mapping) else {}, f"{self._prefix}{key}")
        reader.model_type, reader.problems = self.model_type, self.problems
        return reader

    def require(self, key: str, expected: object, meaning: str) -> None:
        """Reports a key with any value except the one that a `ModelShape` can express."""
        if self.has(key) and self.config[key] != expected:
            self.report(key, f"must be {expected!r}: {meaning} cannot be described")
