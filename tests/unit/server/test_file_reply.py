from __future__ import annotations

from server.http.files import attachment


def test_the_name_of_an_attachment_is_safe_and_right() -> None:
    plain, _, coded = attachment('a"b\\c;%\r\n名.txt').partition("; filename*=")
    assert plain == 'attachment; filename="a_b_c_____.txt"'
    assert coded == "UTF-8''a%22b%5Cc%3B%25%0D%0A%E5%90%8D.txt"
