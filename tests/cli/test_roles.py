"""What a host does, and where it finds the servers of others."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mutoscope.platform.cli import roles, services
from mutoscope.platform.errors import InvalidInput, InvalidParameter
from mutoscope.platform.settings import Settings

SHARED = {"PREFECT_API_URL": "http://10.0.0.5:4200/api/", "PREFECT_UI_URL": "https://flows.example.org"}


def test_roles_come_in_starting_order() -> None:
    assert roles.chosen(None) == ("server", "gateway", "workers", "flows", "reconciler")
    assert roles.chosen(" workers,server ,") == ("server", "workers")


@pytest.mark.parametrize("text", ["", ",", "worker", "workers,all"])
def test_what_is_no_role_is_refused(text: str) -> None:
    with pytest.raises(InvalidParameter, match="server, gateway, workers, flows, reconciler"):
        roles.chosen(text)


def test_one_host_is_its_own_servers() -> None:
    found = roles.addresses(roles.ROLES, Settings(), 4200, 4280, {})
    assert found == roles.Addresses(
        "http://127.0.0.1:4200/api", "http://127.0.0.1:4200", "http://127.0.0.1:4280"
    )


def test_a_server_started_here_wins_over_one_that_was_named() -> None:
    found = roles.addresses(("server",), Settings(), 4200, 4280, {"PREFECT_API_URL": "http://elsewhere/api"})
    assert found.prefect_api_url == "http://127.0.0.1:4200/api"
    assert found.web_url == "", "no gateway is started here, and none was named"


def test_others_servers_are_taken_as_named() -> None:
    settings = Settings(web_url="https://gateway.example.org")
    found = roles.addresses(("workers", "flows"), settings, 4200, 4280, SHARED)
    assert found == roles.Addresses(
        "http://10.0.0.5:4200/api", "https://flows.example.org", "https://gateway.example.org"
    )


@pytest.mark.parametrize("role", ["flows", "reconciler"])
def test_who_needs_a_prefect_server_says_so(role: str) -> None:
    with pytest.raises(InvalidInput, match=r"PREFECT_API_URL names none: set it to .* or add server"):
        roles.addresses(("gateway", role), Settings(), 4200, 4280, {})


def test_workers_and_gateway_need_none() -> None:
    found = roles.addresses(("gateway", "workers"), Settings(), 4200, 4280, {})
    assert found.prefect_api_url == ""


@pytest.mark.parametrize(
    ("host", "url"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("fd00::5", "[fd00::5]"), ("a", "a")]
)
def test_who_listens_everywhere_is_found_on_loopback(host: str, url: str) -> None:
    assert roles.reachable(host) == url


def test_a_gateway_shows_that_it_is_ready_at_its_own_address() -> None:
    """Not at the public one, which may lie behind a proxy that asks for a password."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        port = server.server_address[1]
        gateway = services.gateway("0.0.0.0", port, {"MUTOSCOPE_WEB_URL": "https://gateway.example.org"})
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert gateway.ready(0)
        thread.join()
    assert not gateway.ready(0)
