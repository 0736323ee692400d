"""What the routes have in common: the names they take, the errors they give."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, get_origin

from pydantic import BaseModel
from starlette.requests import Request

from fleetd.web.answers import Problem

HOST_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""As in the configuration of an agent."""
NAME_CHARS_MAX = 253
NO_CONTROL = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""A word to look for."""
IDENTIFIER = r"^[!-~]+$"
"""Of a GPU or a level of burn-in."""
SOMETHING = r"[^\s\x00-\x20\x7f-\xa0\ufeff]"
"""What a reason must have one of. Not `\\S`: dialects differ in which signs are space (U+0085, U+FEFF, U+001C)."""
WORD_CHARS_MAX = 256
LINE_CHARS_MAX = 1000
"""Of a reason; what the desk takes."""

_SAID = {
    401: "Nobody is named by token, cookie or certificate.",
    403: "Whoever asks may not do this, or another site's page sent it.",
    404: "There is no such thing.",
    422: "The request is not understood.",
    429: "You ask too often; `Retry-After` says when.",
    503: "The ledger cannot be read or written now; try again.",
}
_SAID_TO_CHANGES = {
    400: "The body broke off.",
    408: "The body took too long.",
    409: "The controller refuses: it says what is missing.",
    412: "The host is not as `If-Match` says.",
    413: "The body is too large.",
    415: "The body is no JSON.",
}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string", "description": "What, where, what to do; one line."}},
    "required": ["error"],
    "additionalProperties": False,
}


def _said(texts: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    # No model: FastAPI would compile it anew for each status of each route, which takes most of a start.
    return {
        status: {"description": text, "content": {"application/json": {"schema": _ERROR}}}
        for status, text in texts.items()
    }


ERRORS = _said(_SAID)
CHANGE_ERRORS = _said(_SAID | _SAID_TO_CHANGES)


def clean(text: str) -> str:
    """Free text fit for a terminal, a log and a database. What is left of it may be empty: the desk refuses that."""
    return "".join(char if char.isprintable() else " " for char in text)


async def no_query(request: Request) -> None:
    """Refuse parameters where there are none: a misspelt filter would be taken for "all". Raises Problem."""
    for name in request.query_params:
        raise Problem(422, f"query: {name!r:.40} is not known here; remove it")


def each_once(query: type[BaseModel]) -> Callable[[Request], Awaitable[None]]:
    """Make a check that refuses a parameter which is given several times and is no list: which one is meant?"""
    lists = {name for name, field in query.model_fields.items() if get_origin(field.annotation) is list}

    async def check(request: Request) -> None:
        given = Counter(name for name, _ in request.query_params.multi_items())
        for name, times in given.items():
            if times > 1 and name not in lists:
                raise Problem(422, f"query: {name!r:.40} is given {times} times, and only one can count; remove others")

    return check
