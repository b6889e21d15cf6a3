"""The apps, a file each."""

from cod_lightning.envs.apps.api import App
from cod_lightning.envs.apps.catalog.calendar import calendar
from cod_lightning.envs.apps.catalog.contacts import contacts
from cod_lightning.envs.apps.catalog.directory import directory
from cod_lightning.envs.apps.catalog.files import files
from cod_lightning.envs.apps.catalog.mail import mail
from cod_lightning.envs.apps.catalog.messages import messages
from cod_lightning.envs.apps.catalog.music import music
from cod_lightning.envs.apps.catalog.notes import notes
from cod_lightning.envs.apps.catalog.payments import payments
from cod_lightning.envs.apps.catalog.shop import shop
from cod_lightning.envs.apps.catalog.todo import todo
from cod_lightning.envs.apps.catalog.travel import travel
from cod_lightning.envs.apps.catalog.user import user

APPS: tuple[App, ...] = (
    mail, calendar, contacts, files, shop, payments, notes, music, messages, travel, todo, directory, user,
)  # fmt: skip
"""Twelve apps, and the person."""
