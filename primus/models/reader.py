"""Takes keys from a configuration, and remembers which, and what each value came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from primus.errors import Problem
from primus.models.families import FAMILIES, NO_MATTER

_MOST = 100_000_000  # no dimension of a model is near it


class Reader:
    """A configuration on its way to an Architecture."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self.config, self.where = config, where
        self.family = FAMILIES["llama"]
        self.taken: set[str] = set()
        self.sources: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.unsupported: list[Problem] = []

    def take(
        self,
        name: str,
        *keys: str,
        default: Any = None,
        why: str = "",
        kinds: tuple[type, ...] = (int,),
        positive: bool = True,
    ) -> Any:
        """The value of the first of `keys` that is said and not null; else the family's default, else `default`."""
        self.taken.update(keys)
        for key in keys:
            if key in self.config:
                value = self.config[key]
                if value is None:
                    continue
                if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                    self.wrong(key, f"must be {' or '.join(kind.__name__ for kind in kinds)}, not {value!r}")
                    return 1 if default is None else default
                if positive and isinstance(value, (int, float)) and not isinstance(value, bool) and value <= 0:
                    self.wrong(key, f"must be more than zero, not {value}")
                    return 1 if default is None else default
                if isinstance(value, int) and value > _MOST:
                    self.wrong(key, f"is more than {_MOST}")
                    return 1 if default is None else default
                self.sources[name] = key
                return value
        said = "null" if any(key in self.config for key in keys) else "not said"
        for key in keys:
            if key in self.family.defaults:
                self.sources[name] = f"{key} is {said}: the model type's default"
                return self.family.defaults[key]
        if default is None:
            self.wrong(" or ".join(keys), f"is {'null' if said == 'null' else 'missing'}")
            return 1
        self.sources[name] = f"{keys[0]} is {said}: {why}" if why else f"{keys[0]} is {said}"
        return default

    def optional(self, key: str, default: Any) -> Any:
        """The key's value, or the default where it is missing or null; its type must be the default's."""
        self.taken.add(key)
        value = self.config.get(key, self.family.defaults.get(key))
        if value is None:
            return default
        kind = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, kind) or isinstance(value, bool) is not isinstance(default, bool):
            self.wrong(key, f"must be {'a number' if isinstance(default, float) else type(default).__name__}")
            return default
        return value

    def largest(self, name: str, *keys: str) -> float:
        """The largest of the keys' values, 0 where none is said."""
        values = {key: self.optional(key, 0.0) for key in keys}
        most = max(values, key=lambda key: float(values[key]))
        self.sources[name] = most if values[most] else f"{' or '.join(keys[:2])}: none"
        return float(values[most])

    def odd(self, key: str, why: str) -> None:
        """Note that what `key` says is not supported."""
        self.unsupported.append(Problem(message=f"{key}: {why}", where=self.where))

    def wrong(self, key: str, why: str) -> None:
        """Note that what `key` says cannot be."""
        self.problems.append(Problem(message=f"{key}: {why}", where=self.where))

    def finish(self) -> list[Problem]:
        """What is not supported, and the keys that nobody took."""
        for key in self.config:
            if key not in (*self.taken, *self.family.knows) and not NO_MATTER.fullmatch(key):
                self.odd(key, f"is not known here (it says {_short(self.config[key])})")
        return self.unsupported


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
