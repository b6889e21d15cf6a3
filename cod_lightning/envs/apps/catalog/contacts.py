"""The person's address book."""

from collections.abc import Iterable

from cod_lightning.envs.apps.api import App, AppDesk
from cod_lightning.envs.apps.schema import Contact

contacts = App("contacts", "Private address book; label says what they are to the person, such as sister.")
contacts.shows("show", Contact)
contacts.creates("create", Contact, "name email phone label city")
contacts.updates("update", Contact, "name email phone label city")
contacts.deletes("delete", Contact)


@contacts.lists
def search(desk: AppDesk, query: str = "", label: str = "", city: str = "") -> Iterable[Contact]:
    """Contacts whose name contains the query, with this label, in this city."""
    rows = desk.db.all(Contact)
    return (c for c in rows if query.lower() in c.name.lower() and label in ("", c.label) and city in ("", c.city))


contacts.values("labels", Contact, "label", "All labels in use.")
