"""What is told of a kernel's messages: texts, and pictures as what they are."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from runtime_images.runner.kernel.kernel_driver.driver import shown
from tests.unit.runner.test_pictures import png

PNG = base64.b64encode(png()).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0 the rest").decode()


def displayed(**data: Any) -> list[dict[str, Any]]:
    return shown("display_data", {"data": {name.replace("_", "/"): value for name, value in data.items()}})


@pytest.mark.parametrize(
    ("data", "url"),
    [
        ({"image_png": PNG}, f"data:image/png;base64,{PNG}"),
        ({"image_png": f"{PNG[:20]}\n{PNG[20:]}\n"}, f"data:image/png;base64,{PNG}"),
        ({"image_jpeg": JPEG}, f"data:image/jpeg;base64,{JPEG}"),
        ({"image_png": JPEG}, f"data:image/jpeg;base64,{JPEG}"),
        ({"image_jpeg": PNG}, f"data:image/png;base64,{PNG}"),
    ],
)
def test_a_picture_is_given_as_the_kind_that_it_is(data: dict[str, str], url: str) -> None:
    assert displayed(text_plain="<Figure>", **data) == [{"display": "<Figure>"}, {"image": url}]


@pytest.mark.parametrize("data", ["no base64!", "AAAA", base64.b64encode(b"GIF89a").decode(), "iVBORw0KGgo"])
def test_what_is_no_picture_is_told_in_words_and_never_shown_to_a_model(data: str) -> None:
    (told,) = displayed(image_png=data)
    assert told == {"display": "[What was to be shown as image/png is no such picture; it was left out.]"}
