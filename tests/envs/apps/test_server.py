"""The site: log-ins, tokens, pages, quirks, bounds; every endpoint, with right arguments and with hostile ones."""

import random
from dataclasses import replace
from typing import Literal

import pytest

from cod_lightning.envs.apps.api import ApiError, App, AppDesk
from cod_lightning.envs.apps.catalog import APPS
from cod_lightning.envs.apps.facts import HiddenFacts
from cod_lightning.envs.apps.person import populated
from cod_lightning.envs.apps.schema import Card, Contact, Mail, Order
from cod_lightning.envs.apps.server import FREE, AppServer
from cod_lightning.envs.apps.tasks import AppsTask
from tests.cases import each
from tests.envs.apps.hostile import ENDPOINTS, hostile_calls, logged_in

TASK = AppsTask(
    template="count_mails", parts=(("email", "a@b"),), person=7, facts=HiddenFacts(zone="+0", card="gold", boss="head")
)


def site(**facts) -> AppServer:
    return replace(TASK, facts=replace(TASK.facts, **facts)).server(patience=2)


def fails(server: AppServer, name: str, status: int, /, **arguments) -> str:
    with pytest.raises(ApiError) as error:
        server.call(name, arguments)
    assert error.value.status == status
    return error.value.message


def test_documentation_can_be_asked_for_without_a_token_and_does_not_count():
    server = site(rate="2")
    for app in APPS:
        assert len(server.call("user.docs", {"app": app.name})) == len(app.endpoints)
    assert set(server.call("user.apps", {})) == {app.name for app in APPS}
    assert server.calls == 0
    assert "user.docs" in FREE
    assert fails(server, "user.docs", 404, app="nothing")


def test_a_private_app_wants_the_token_of_its_own_log_in():
    server = site()
    fails(server, "mail.list", 401)
    fails(server, "mail.list", 401, token="mail-0007")
    fails(server, "mail.login", 403, password="guess")
    token = logged_in(server, "mail")
    assert server.call("mail.list", {"token": token})["items"]
    fails(server, "shop.orders", 401, token=token)
    fails(server, "shop.orders", 401, token=token.replace("mail", "shop"))
    assert server.call("directory.people", {})["items"]


def test_lists_come_in_pages_of_ten_or_what_the_site_has_instead():
    for facts, size in (({}, 10), ({"page": "3"}, 3)):
        server = site(**facts)
        token = logged_in(server, "mail")
        first = server.call("mail.list", {"token": token})
        pages = [server.call("mail.list", {"token": token, "page": n + 1}) for n in range(first["pages"])]
        assert [len(page["items"]) for page in pages[:-1]] == [size] * (first["pages"] - 1)
        assert len({item["id"] for page in pages for item in page["items"]}) == 14
        fails(server, "mail.list", 422, token=token, page=first["pages"] + 1)
        fails(server, "mail.list", 422, token=token, page=True)


def test_a_moved_log_in_answers_under_its_new_name_alone():
    server = site(moved="enter")
    assert "user.endpoints" in fails(server, "mail.login", 410, password="x")
    assert "enter" in server.call("user.endpoints", {"app": "mail"})
    assert "login" not in server.call("user.endpoints", {"app": "mail"})
    assert logged_in(server, "mail")
    assert any("mail.login" in line for line in server.call("user.docs", {"app": "mail"})), "documents do not know it"


def test_a_hidden_argument_is_wanted_by_what_changes_something_and_named_by_the_error():
    server = site(field="mode=desk")
    token = logged_in(server, "notes")
    given = {"token": token, "title": "a", "text": "b"}
    assert fails(server, "notes.create", 422, **given).endswith("expected mode=desk")
    assert server.call("notes.create", {**given, "mode": "desk"})["title"] == "a"
    fails(site(), "notes.create", 401, **given)


def test_calls_of_a_turn_are_limited_where_the_site_limits_them_and_those_of_a_task_but_not_its_end():
    server = site(rate="2")
    server.call("directory.teams", {})
    server.call("directory.teams", {})
    assert "2 are answered" in fails(server, "directory.teams", 429)
    server.begin_turn()
    server.call("directory.teams", {})
    server = replace(TASK, budget=1).server(patience=1)
    server.call("directory.teams", {})
    fails(server, "directory.teams", 429)
    assert server.call("user.done", {"answer": "3"})
    fails(server, "directory.teams", 409)
    assert (server.finished, server.answer) == (True, "3")


def test_the_calendar_may_be_on_another_clock():
    server = site(zone="-5")
    assert server.call("calendar.clock", {"token": logged_in(server, "calendar")}) == {"now": "2026-03-02 04:00"}


def test_an_error_half_way_changes_nothing():
    server = site()
    token, before = logged_in(server, "payments"), server.db.copy()
    request = server.call("payments.requests", {"token": token})["items"][0]
    fails(server, "payments.approve", 404, token=token, id=request["id"], card="nothing")
    assert not server.db.changes(before)


def test_money_and_stock_are_kept_account_of():
    server = site()
    token = logged_in(server, "shop")
    before = {card.name: card.balance for card in server.db.all(Card)}
    product = server.call("shop.products", {"token": token})["items"][0]
    server.call("shop.add_to_cart", {"token": token, "product_id": product["id"], "quantity": 2})
    (order,) = server.call("shop.checkout", {"token": token, "card": "gold", "address": "home"})
    after = {card.name: card.balance for card in server.db.all(Card)}
    assert before["gold"] - after["gold"] == 2 * product["price"]
    assert server.call("shop.product", {"token": token, "id": product["id"]})["stock"] == product["stock"] - 2
    server.call("shop.cancel_order", {"token": token, "id": order["id"]})
    assert {card.name: card.balance for card in server.db.all(Card)} == before
    fails(server, "shop.cancel_order", 409, token=token, id=order["id"])


def test_no_more_is_ordered_than_there_is_of_it_in_however_many_lines():
    server = site()
    token = logged_in(server, "shop")
    product = server.call("shop.products", {"token": token})["items"][0]

    def ordered(*quantities):
        for quantity in quantities:
            server.call("shop.add_to_cart", {"token": token, "product_id": product["id"], "quantity": quantity})
        return {"token": token, "card": "gold", "address": "home"}

    server.call("shop.checkout", ordered(1, 2))
    assert server.call("shop.product", {"token": token, "id": product["id"]})["stock"] == product["stock"] - 3
    server.call("shop.checkout", ordered(product["stock"] - 4))
    ordered(1)
    more = {"token": token, "product_id": product["id"]}
    assert fails(server, "shop.add_to_cart", 409, **more).endswith("; 0 are in stock")


@each(("name", "day"), [("payments.transfers", "on"), ("shop.orders", "placed")])
def test_what_is_listed_newest_first_goes_by_its_day(name, day):
    server = site()
    items = server.call(name, {"token": logged_in(server, name.partition(".")[0])})["items"]
    assert len({one[day] for one in items}) > 2
    assert [one[day] for one in items] == sorted((one[day] for one in items), reverse=True)


def test_an_argument_is_one_of_the_values_that_are_named_and_of_their_type():
    app = App("rating", "Stars.", private=False)

    @app.reads
    def rate(desk: AppDesk, stars: Literal[1, 2, "none"]) -> int | str:
        """The stars again."""
        return stars

    server = site()
    server.apps = (*APPS, app)
    assert [server.call("rating.rate", {"stars": stars}) for stars in (1, 2, "none")] == [1, 2, "none"]
    for stars in (True, 1.0, "1", 3, [1], None):
        assert fails(server, "rating.rate", 422, stars=stars) == "stars does not fit; expected one of 1, 2, 'none'"


def test_a_person_has_the_same_apps_whatever_is_hidden_but_for_what_habits_leave_behind():
    one, other = populated(7, TASK.facts), populated(7, replace(TASK.facts, card="blue"))
    assert list(one.all(Contact)) == list(other.all(Contact))
    assert list(one.all(Mail)) == list(other.all(Mail))
    assert {order.card for order in one.all(Order)} == {"gold"}
    assert {order.card for order in other.all(Order)} == {"blue"}


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_hostile_calls_raise_nothing_but_what_the_site_answers(count):
    server = replace(TASK, budget=10**9).server(patience=2)
    assert hostile_calls(server, random.Random(count), count) > count / 10
    for table in server.db.tables.values():
        for row in table.values():
            hash(row)


@each("endpoint", ENDPOINTS)
def test_an_endpoint_takes_what_it_documents_and_nothing_more(endpoint):
    if endpoint.name == "login":
        return
    server = site()
    given = {"token": logged_in(server, endpoint.app)} if endpoint.private else {}
    values = {"whole number": 3, "number": 1.0, "text": "x", "true or false": True}
    fit = {p.name: values.get(p.kind, p.kind.partition(" such as ")[2]) for p in endpoint.parameters if p.required}
    message = fails(server, f"{endpoint.app}.{endpoint.name}", 422, **given, **fit, colour="red")
    assert "unknown argument" in message
    for parameter in endpoint.parameters:
        message = fails(server, f"{endpoint.app}.{endpoint.name}", 422, **given, **{**fit, parameter.name: object()})
        assert "does not fit" in message
        if parameter.required:
            rest = {name: value for name, value in fit.items() if name != parameter.name}
            assert "needs" in fails(server, f"{endpoint.app}.{endpoint.name}", 422, **given, **rest)
