"""The kinds of tasks, by name."""

from cod_lightning.envs.apps.templates.base import Template as Template
from cod_lightning.envs.apps.templates.one_app import ONE_APP
from cod_lightning.envs.apps.templates.several_apps import SEVERAL_APPS

TEMPLATES: dict[str, Template] = {**ONE_APP, **SEVERAL_APPS}
