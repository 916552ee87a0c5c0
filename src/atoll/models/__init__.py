"""Language models behind one thin interface: a name in, replies out.

    model = atoll.models.load("openai/gpt-4o-mini")
    reply = await model.ask([{"role": "user", "content": "hi"}])
    await model.aclose()

Messages and tools are in the format of OpenAI's chat completions. What speaks over the network is imported at the
first `ask`.
"""

from __future__ import annotations

from .contract import Model, Reply, ToolCall, Usage
from .loading import load
from .prices import cost_of
from .tokens import estimate_tokens

__all__ = ["Model", "Reply", "ToolCall", "Usage", "cost_of", "estimate_tokens", "load"]
