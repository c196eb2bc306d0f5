"""Settings: flags before variables before defaults; a variable that nobody reads is a mistake."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner

from core.errors import UsageError
from service.command import serve
from service.settings import Settings, read_settings
from training.cli import main

HERE = {"XREG_RELEASES": "here"}


def test_flags_come_before_variables_and_variables_before_defaults() -> None:
    settings = read_settings({**HERE, "XREG_PORT": "81", "XREG_HOST": "::1"}, {"port": 82, "host": None})
    assert settings == Settings(releases=Path("here"), port=82, host="::1")


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("", False), ("No", False)])
def test_switches_are_read_as_people_write_them(text: str, value: bool) -> None:
    assert read_settings({**HERE, "XREG_LOG_QUERIES": text}, {}).log_queries is value


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match="XREG_MAX_BODDY is no variable of xreg; did you mean XREG_MAX_BODY"):
        read_settings({**HERE, "XREG_MAX_BODDY": "1"}, {})


def test_variables_of_the_rest_of_the_project_are_known() -> None:
    read_settings({**HERE, "XREG_DATA": "a", "XREG_KERNEL_CACHE": "b", "XREG_REDIS": "c", "HOME": "d"}, {})


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PORT", "x", "XREG_PORT must be a whole number, got 'x'"),
        ("PORT", "70000", "port must be between 0 and 65535, got 70000"),
        ("WORKERS", "0", "workers must be between 1 and 256, got 0"),
        ("MAX_BODY", "0", "max_body must be at least 1"),
        ("MAX_CONCURRENCY", "0", "max_concurrency must be at least 1"),
        ("WATCH_SECONDS", "nan", "watch_seconds must not be negative"),
        ("BODY_SECONDS", "0", "body_seconds must be above 0"),
        ("LOG_QUERIES", "maybe", "XREG_LOG_QUERIES must be 1 or 0, got 'maybe'"),
        ("ADMIN_TOKEN", "short", "admin_token must have 8 characters"),
    ],
)
def test_values_that_cannot_be_are_refused(variable: str, value: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_settings({**HERE, f"XREG_{variable}": value}, {})


def test_somebody_must_say_where_the_releases_are() -> None:
    with pytest.raises(UsageError, match="--releases DIR or XREG_RELEASES"):
        read_settings({}, {})


def test_the_token_is_not_shown() -> None:
    assert "hush hush" not in repr(Settings(releases=Path(), admin_token="hush hush"))


def test_every_setting_is_a_flag_of_xreg_serve() -> None:
    shown = CliRunner().invoke(main, ["serve", "--help"]).output
    for setting in fields(Settings):
        assert "--" + setting.name.replace("_", "-") in shown
        assert "XREG_" + setting.name.upper() in "".join(shown.split())


def test_errors_end_the_command_with_one_line_and_their_exit_code(tmp_path: Path) -> None:
    ended = CliRunner().invoke(serve, ["--releases", str(tmp_path / "nowhere")])
    assert (ended.exit_code, ended.output) == (7, f"error: {tmp_path / 'nowhere'}: no such directory\n")
