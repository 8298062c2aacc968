"""Who may talk to the Prefect server, and how long it remembers: as Prefect reads what a stack sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prefect.settings import Settings as PrefectSettings
from prefect.settings import get_current_settings

from mutoscope.platform.errors import InvalidParameter
from mutoscope.platform.orchestration import stack
from mutoscope.platform.settings import Settings

API = "http://127.0.0.1:4200/api"


def as_prefect_reads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **given: Any) -> PrefectSettings:
    for name, value in stack.environment(tmp_path, API, "", Settings(home=tmp_path, **given)).items():
        monkeypatch.setenv(name, value)
    return type(get_current_settings())()


def test_only_its_own_pages_and_clients_with_a_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read = as_prefect_reads(monkeypatch, tmp_path)
    assert read.server.api.csrf_protection_enabled
    assert read.server.api.cors_allowed_origins == "http://127.0.0.1:4200"
    assert read.server.ui.api_url == "/api"
    assert not read.server.ui.v2_enabled, "the second UI calls a tracker"
    assert not read.server.analytics_enabled
    assert read.server.api.auth_string is None


def test_one_credential_for_the_server_and_its_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read = as_prefect_reads(monkeypatch, tmp_path, prefect_auth="ada:with: colons")
    assert read.server.api.auth_string is not None
    assert read.api.auth_string is not None
    assert read.server.api.auth_string.get_secret_value() == "ada:with: colons"
    assert read.api.auth_string.get_secret_value() == "ada:with: colons"
    assert "colons" not in repr(Settings(home=tmp_path, prefect_auth="ada:with: colons"))


def test_it_forgets_flow_runs_after_the_stated_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    vacuum = as_prefect_reads(monkeypatch, tmp_path, prefect_keep="30d").server.services.db_vacuum
    assert vacuum.enabled_vacuum_types == {"events", "flow_runs", "orphans"}
    assert vacuum.retention_period.days == 30


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"prefect_keep": "1h"}, "MUTOSCOPE_PREFECT_KEEP='1h' is not valid: use more than 1h, such as 30d"),
        (
            {"prefect_keep": "a while"},
            "MUTOSCOPE_PREFECT_KEEP='a while' is not valid: use a number and a unit",
        ),
        ({"prefect_auth": "secret"}, "MUTOSCOPE_PREFECT_AUTH='...' is not valid: write user:password"),
        ({"prefect_auth": "ada:"}, "MUTOSCOPE_PREFECT_AUTH='...' is not valid: write user:password"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, given: dict[str, Any], line: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        stack.environment(tmp_path, API, "", Settings(home=tmp_path, **given))
    assert str(caught.value).startswith(line)


def test_a_process_without_a_stack_here_identifies_itself_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stack, "get_settings", lambda: Settings(home=tmp_path, prefect_auth="ada:secret"))
    environment = {"PREFECT_API_URL": API}
    assert stack.join(tmp_path, environment) is None
    assert environment["PREFECT_API_AUTH_STRING"] == "ada:secret"
