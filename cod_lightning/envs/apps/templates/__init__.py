"""The kinds of tasks, by name; `CONFIRMED` are drawn only where they are named."""

from cod_lightning.envs.apps.templates.base import Template as Template
from cod_lightning.envs.apps.templates.confirmed import CONFIRMED as CONFIRMED
from cod_lightning.envs.apps.templates.leisure import LEISURE
from cod_lightning.envs.apps.templates.office import OFFICE
from cod_lightning.envs.apps.templates.several_apps import SEVERAL_APPS

TEMPLATES: dict[str, Template] = {**OFFICE, **LEISURE, **SEVERAL_APPS}
