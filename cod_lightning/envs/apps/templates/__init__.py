"""The kinds of tasks, by name."""

from cod_lightning.envs.apps.templates.base import Template as Template
from cod_lightning.envs.apps.templates.leisure import LEISURE
from cod_lightning.envs.apps.templates.office import OFFICE
from cod_lightning.envs.apps.templates.several_apps import SEVERAL_APPS

TEMPLATES: dict[str, Template] = {**OFFICE, **LEISURE, **SEVERAL_APPS}
