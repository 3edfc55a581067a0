from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.auth.identity import COOKIE_PREFIX, SESSION_SECONDS, PageSessions
from server.doors.preview.access import without_cookie


def cookie_of(sessions: PageSessions) -> str:
    return sessions.begin(is_safe=False).partition(";")[0]


def test_a_session_is_known_until_it_ends() -> None:
    now = [1000.0]
    sessions = PageSessions("the-token", now=lambda: now[0])
    cookie = cookie_of(sessions)
    assert sessions.holds(f"a=b; {cookie}; c=d")
    now[0] += SESSION_SECONDS - 1
    assert sessions.holds(cookie)
    now[0] += 1
    assert not sessions.holds(cookie)


def test_a_session_of_another_token_or_a_later_end_is_none() -> None:
    sessions = PageSessions("the-token", now=lambda: 1000.0)
    name, _, value = cookie_of(sessions).partition("=")
    ends, _, seal = value.partition(".")
    assert not PageSessions("other-token", now=lambda: 1000.0).holds(f"{name}={value}")
    assert not sessions.holds(f"{name}={int(ends) + 1}.{seal}")
    assert not sessions.holds(f"{name}={ends}.")
    assert not sessions.holds(f"{name}x={value}")


def test_servers_on_one_host_have_cookies_of_their_own() -> None:
    names = {cookie_of(PageSessions(token)).partition("=")[0] for token in ("the-token", "other-token")}
    assert len(names) == 2


def test_only_a_browser_that_came_over_tls_keeps_it_for_tls() -> None:
    sessions = PageSessions("the-token")
    assert "Secure" not in sessions.begin(is_safe=False)
    assert sessions.begin(is_safe=True).endswith("; Secure")


@given(st.text())
def test_nothing_made_up_is_a_session(text: str) -> None:
    sessions = PageSessions("the-token")
    name = cookie_of(sessions).partition("=")[0]
    assert not sessions.holds(text)
    assert not sessions.holds(f"{name}={text}")


def test_programs_in_the_sandbox_do_not_see_it() -> None:
    cookie = cookie_of(PageSessions("the-token"))
    assert cookie.startswith(COOKIE_PREFIX)
    assert without_cookie(f"a=b; {cookie}; c=d") == "a=b; c=d"
