"""What OpenAI's clients are answered."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class Model(BaseModel):
    """A model of this door."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    """All of them."""

    object: Literal["list"]
    data: list[Model]


class Answer(BaseModel):
    """What the agent says."""

    role: Literal["assistant"]
    content: str
    refusal: None
    reasoning_content: str = Field("", description="What it thinks and does on the way.")


class Choice(BaseModel):
    """The one answer."""

    index: int
    message: Answer
    finish_reason: Literal["stop"]
    logprobs: None


class Usage(BaseModel):
    """The tokens of all model calls behind an answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """An answer in one piece."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    conversation_id: str = Field(description="The conversation behind the chat; an addition.")
    choices: list[Choice]
    usage: Usage
