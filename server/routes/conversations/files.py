"""The files and folders of a conversation's workspace: listed, shown, sent and taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Final, Literal

from fastapi import Request
from pydantic import BaseModel, Field
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from agent_core.errors import DrydockError, SandboxClosedError, SandboxError, SandboxLostError, ToolError
from agent_core.runtime.transfers import Upload, list_folder, reading, writing
from agent_core.tools.context import SandboxAccess
from server.dependencies import Services, ServicesDependency, SharedConversation
from server.errors import ReplyError
from server.http.files import (
    Begin,
    ByteRange,
    Data,
    FileReply,
    FormError,
    RangeError,
    attachment,
    file_headers,
    form_events,
    is_named,
    span_of,
)
from server.routes.query import LINKED, FilePath, Paging, PagingDependency
from server.routes.replies import errors
from server.routes.route_classes import WatchedJsonRoute, WatchedRoute, make_router

_PREFIX = "/api/conversations/{conversation_id}"
router = make_router(_PREFIX)
_files = make_router(_PREFIX, route_class=WatchedRoute, responses=errors(403, 413, 503, 507))
_folders = make_router(_PREFIX, route_class=WatchedJsonRoute, responses=errors(403, 503))
MAX_SHOWN_BYTES = 5 * 1024 * 1024
MAX_PATH = 4096
NO_SANDBOX = "Runtime not yet initialized"
_NO_ENTRIES: Final[dict[str, Any]] = {"entries": [], "left_out": 0}
STATUSES: Final = {
    "bad_request": 400,
    "not_a_file": 400,
    "forbidden": 403,
    "no_repository": 404,
    "not_found": 404,
    "too_large": 413,
    "binary": 415,
    "busy": 503,
    "no_space": 507,
    "disk_reserve": 507,
}
_FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {"type": "array", "items": {"type": "string", "format": "binary"}},
                        "path": {"type": "string", "description": "Folder for the files that follow it."},
                    },
                }
            }
        },
    }
}
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}}
_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A ZIP file, made while it is sent", "content": {"application/zip": _BYTES}}
}
_FILE_HEADERS: dict[str, Any] = {
    "ETag": {"description": "Differs whenever the file does.", "schema": {"type": "string"}},
    "Content-Disposition": {"description": "The name to save it under.", "schema": {"type": "string"}},
}
_DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "A file, or a folder as a ZIP file", "content": {"*/*": _BYTES}},
    206: {"description": "The bytes that `Range` asks for", "content": {"*/*": _BYTES}, "headers": _FILE_HEADERS},
    304: {"description": "It is the one that `If-None-Match` names", "headers": _FILE_HEADERS},
    **errors(416),
}


class FolderEntry(BaseModel):
    """What is in a folder; a link that leads nowhere is `missing`."""

    name: str
    kind: Literal["file", "folder", "missing", "other"]
    link: bool
    size: int | None
    modified: float | None = Field(description="Seconds since 1970.")
    hidden: bool = Field(description="Left out of `list-files`.")


class Folder(BaseModel):
    """A folder of the workspace."""

    root: str = Field(description="The workspace, as commands see it.")
    path: str
    entries: list[FolderEntry]
    left_out: int = Field(ge=0, description="How many more there are behind this page.")
    next_page_id: str | None = Field(description="`page_id` of the next page; null on the last one.")


class FileText(BaseModel):
    """The text of a file."""

    code: str


class SkippedFile(BaseModel):
    """A file that could not be stored."""

    name: str
    reason: str


class Uploaded(BaseModel):
    """What became of uploaded files."""

    uploaded_files: list[str] = Field(description="Absolute paths, as commands see them.")
    skipped_files: list[SkippedFile]


def workspace_of(services: Services, conversation_id: str) -> SandboxAccess:
    """The running conversation's sandbox, whose use is noted; `ReplyError` 404: it is not there (yet)."""
    services.manager.touch(conversation_id)
    sandbox = services.manager.sandbox(conversation_id)
    if sandbox is None:
        raise ReplyError(404, {"error": NO_SANDBOX})
    return sandbox


def refusal(error: DrydockError) -> ReplyError:
    """The reply for what the sandbox refused or failed at; one that ends with its conversation is none any more."""
    if isinstance(error, SandboxClosedError):
        return ReplyError(404, {"error": NO_SANDBOX})
    status = STATUSES.get(error.code, 500) if isinstance(error, SandboxError | ToolError) else 500
    return ReplyError(status, {"error": str(error)})


@_files.get("/select-file", response_model=FileText, responses=errors(415))
async def select_file(record: SharedConversation, services: ServicesDependency, file: FilePath) -> dict[str, str]:
    """The text of a file."""
    sandbox = workspace_of(services, record.id)
    try:
        async with reading(sandbox, file) as found:
            if found.size is None:
                raise ReplyError(400, {"error": f"{file or 'the workspace'} is a folder, not a file"})
            if found.size > MAX_SHOWN_BYTES:
                text = f"{file} has {found.size} bytes; at most {MAX_SHOWN_BYTES} are shown. Download it instead."
                raise ReplyError(413, {"error": text})
            data = b"".join([part async for part in found.parts()])
    except ReplyError:
        raise
    except DrydockError as error:
        raise refusal(error) from error
    try:
        if b"\0" in data:
            raise ValueError("it holds NUL")
        return {"code": data.decode("utf-8")}
    except ValueError:
        raise ReplyError(415, {"error": f"Unable to open binary file: {file}"}) from None


@_files.get("/download", response_class=Response, responses=_DOWNLOAD)
async def download(
    request: Request, record: SharedConversation, services: ServicesDependency, path: FilePath
) -> Response:
    """The bytes of a file, or a folder as a ZIP file. Ranges and tags are understood."""
    return await _download(request, services, record.id, path, only_folders=False)


@_files.get("/zip-directory", response_class=Response, responses=_ARCHIVE)
async def zip_directory(
    request: Request, record: SharedConversation, services: ServicesDependency, path: FilePath = ""
) -> Response:
    """The workspace, or a folder of it, as a ZIP file."""
    return await _download(request, services, record.id, path, only_folders=True)


async def _download(
    request: Request, services: Services, conversation_id: str, path: str, *, only_folders: bool
) -> Response:
    sandbox = workspace_of(services, conversation_id)

    def touch() -> None:
        services.manager.touch(conversation_id)

    async with AsyncExitStack() as stack:
        try:
            file = await stack.enter_async_context(reading(sandbox, path))
        except DrydockError as error:
            raise refusal(error) from error
        if file.size is None:
            headers = {
                "content-type": "application/zip",
                "content-disposition": attachment(f"{file.name or 'workspace'}.zip"),
            }
            return FileReply(file, stack.pop_all(), headers, span=None, touch=touch)
        if only_folders:
            raise ReplyError(400, {"error": f"{path} is a file, not a folder"})
        headers = file_headers(file)
        if is_named(headers["etag"], request.headers.get("if-none-match")):
            return Response(None, 304, headers)
        span = None
        try:
            if request.headers.get("if-range") in (None, headers["etag"]):
                span = span_of(request.headers.get("range"), file.size)
        except RangeError:
            text = f"the file has {file.size} bytes"
            raise ReplyError(416, {"error": text}, headers={"content-range": f"bytes */{file.size}"}) from None
        if span is None:
            return FileReply(file, stack.pop_all(), headers, span=ByteRange(0, file.size), touch=touch)
        headers["content-range"] = f"bytes {span.start}-{span.end - 1}/{file.size}"
        return FileReply(file, stack.pop_all(), headers, status=206, span=span, touch=touch)
    raise AssertionError  # pragma: no cover - the block above always returns or raises


@_files.post("/upload-files", openapi_extra=_FORM, response_model=Uploaded)
async def upload_files(
    request: Request, record: SharedConversation, services: ServicesDependency, path: FilePath = ""
) -> dict[str, Any]:
    """Take files byte for byte; names may have folders in them, and `path` says below which one. Each is stored whole.

    What cannot be stored is skipped, with the reason.
    """
    upload = _Upload(workspace_of(services, record.id), path)
    try:
        async for event in form_events(request):
            if isinstance(event, Begin):
                await upload.begin(event)
            elif isinstance(event, Data):
                services.manager.touch(record.id)
                await upload.take(event.data)
            else:
                await upload.end()
    except FormError as error:
        raise ReplyError(400, {"error": str(error), "detail": str(error)}) from error
    except ClientDisconnect as error:
        raise ReplyError(400, {"error": "the upload broke off"}) from error  # nobody is there to read it
    except SandboxLostError as error:
        raise refusal(error) from error
    finally:
        upload.drop()
    if not upload.has_files:
        text = "files: the form has no file in this field"
        raise ReplyError(422, {"detail": [{"type": "missing", "loc": ["body", "files"], "msg": text}], "error": text})
    return {"uploaded_files": upload.stored, "skipped_files": upload.skipped}


class _Upload:
    def __init__(self, sandbox: SandboxAccess, folder: str) -> None:
        self.stored: list[str] = []
        self.skipped: list[dict[str, str]] = []
        self.has_files = False
        self._sandbox = sandbox
        self._folder = folder
        self._field = ""
        self._text = bytearray()
        self._name = ""
        self._incoming: Upload | None = None

    async def begin(self, part: Begin) -> None:
        self._field = part.field
        self._text.clear()
        if part.field != "files" or part.filename is None:
            return
        self.has_files = True
        self._name = part.filename.replace("\\", "/")  # as some systems part them
        if not self._name:
            self._skip("the file has no name")
            return
        with self._skipping():
            self._incoming = await writing(self._sandbox, self._path())

    async def take(self, data: bytes) -> None:
        if self._incoming is not None:
            with self._skipping():
                await self._incoming.write(data)
        elif self._field == "path":
            self._text += data[: MAX_PATH - len(self._text)]

    async def end(self) -> None:
        if self._incoming is not None:
            with self._skipping():
                await self._incoming.keep()
                self._incoming = None
                root = self._sandbox.working_dir.rstrip("/")
                parts = self._path().removeprefix(root).split("/")
                self.stored.append(_printable("/".join([root, *(part for part in parts if part not in ("", "."))])))
        elif self._field == "path":
            self._folder = self._text.decode("utf-8", "surrogateescape")

    def drop(self) -> None:
        if self._incoming is not None:
            self._incoming.drop()
            self._incoming = None

    def _path(self) -> str:
        return self._name if not self._folder or self._name.startswith("/") else f"{self._folder}/{self._name}"

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        try:
            yield
        except SandboxLostError:
            raise
        except (SandboxError, ToolError) as error:
            self._skip(str(error))

    def _skip(self, reason: str) -> None:
        self.drop()
        self.skipped.append({"name": _printable(self._name), "reason": reason})


def _printable(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@_folders.get("/list-files", responses={200: LINKED})
async def list_files(
    record: SharedConversation, services: ServicesDependency, paging: PagingDependency, path: FilePath = ""
) -> list[str]:
    """The names in a folder, those of folders with a slash behind them; with `path` each begins with it.

    A folder that is not there has none: clients ask for some that few workspaces have, and take an error for a failure.
    """
    found = await _listed(workspace_of(services, record.id), path, paging, if_missing=_NO_ENTRIES)
    prefix = path if not path or path.endswith("/") else f"{path}/"
    shown = [one for one in found["entries"] if not one["hidden"]]
    page = paging.linked(shown, _folder_order, bool, str, str, goes_on=found["left_out"] > 0)
    return [f"{prefix}{one['name']}{'/' if one['kind'] == 'folder' else ''}" for one in page]


@_folders.get("/files", response_model=Folder)
async def folder_entries(
    record: SharedConversation, services: ServicesDependency, paging: PagingDependency, path: FilePath = ""
) -> dict[str, Any]:
    """All that is in a folder, with kinds, sizes and times; folders first. `left_out` are behind this page."""
    sandbox = workspace_of(services, record.id)
    found = await _listed(sandbox, path, paging)
    page, next_page_id = paging.cut(found["entries"], _folder_order, bool, str, str, goes_on=found["left_out"] > 0)
    left_out = found["left_out"] + len(found["entries"]) - len(page)
    return {**found, "root": sandbox.working_dir, "entries": page, "left_out": left_out, "next_page_id": next_page_id}


async def _listed(
    sandbox: SandboxAccess, path: str, paging: Paging, *, if_missing: dict[str, Any] | None = None
) -> dict[str, Any]:
    last = paging.last(bool, str, str)
    after, after_folder = (last[2], not last[0]) if last is not None else ("", False)
    try:
        return await list_folder(sandbox, path, after=after, after_folder=after_folder)
    except DrydockError as error:
        if if_missing is not None and isinstance(error, ToolError) and error.code == "not_found":
            return if_missing
        raise refusal(error) from error


def _folder_order(entry: dict[str, Any]) -> tuple[bool, str, str]:
    return (entry["kind"] != "folder", entry["name"].lower(), entry["name"])


router.routes.extend([*_files.routes, *_folders.routes])
