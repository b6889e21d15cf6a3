"""What a site has: the apps that ship, and those of your own."""

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from cod_lightning.envs.apps.api import App
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.database import Database
from cod_lightning.envs.apps.person import Owner
from cod_lightning.envs.apps.templates import CONFIRMED, TEMPLATES, Template
from cod_lightning.envs.apps.templates.base import by_name
from cod_lightning.envs.base import Unchanging
from cod_lightning.errors import ConfigError


class Extension(ABC, Unchanging):
    """An app of your own, its tasks, and what it holds before a task; all quirks of a site hold for it, too.

    It has no state: two of a class are the same.
    """

    app: ClassVar[App]
    templates: ClassVar[tuple[type[Template], ...]]

    @abstractmethod
    def fill(self, db: Database, person: Owner, rng: random.Random) -> None:
        """Write what the app holds into the database, which has all that ships already."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


@dataclass(frozen=True)
class AppSite:
    """Apps and kinds of tasks."""

    apps: tuple[App, ...]
    templates: Mapping[str, Template]
    extensions: tuple[Extension, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Functions of apps stay where they are; another process has them from the same extensions."""
        return site_of, (self.extensions,)


@lru_cache(maxsize=64)
def site_of(extensions: tuple[Extension, ...]) -> AppSite:
    """What ships, and what the extensions add. Raises `ConfigError` for a name that is taken."""
    apps, templates = list(APPS), {**TEMPLATES, **CONFIRMED}
    for extension in extensions:
        added = by_name(extension.templates)
        if taken := {extension.app.name} & {app.name for app in apps} or set(added) & set(templates):
            expected = "names of apps and templates that are not there yet"
            raise ConfigError(
                "data.env.extensions", sorted(taken), expected, f"Rename it in {type(extension).__name__}."
            )
        apps.append(extension.app)
        templates |= added
    return AppSite(tuple(apps), templates, extensions)
