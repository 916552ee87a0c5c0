"""Who serves models in OpenAI's format, where, and which variable of the environment has the key."""

from __future__ import annotations

from typing import NamedTuple


class Provider(NamedTuple):
    """`key` is None for servers of your own. `priced_as` is the prefix in LiteLLM's table of prices."""

    name: str
    url: str
    key: str | None
    priced_as: str


def _known(*rows: tuple[str, str, str | None] | tuple[str, str, str | None, str]) -> dict[str, Provider]:
    return {row[0]: Provider(row[0], row[1], row[2], row[3] if len(row) == 4 else row[0]) for row in rows}


PROVIDERS = _known(
    ("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    ("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    ("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    ("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together_ai"),
    ("together_ai", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    ("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    ("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
    ("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    ("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", "fireworks_ai"),
    ("fireworks_ai", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    ("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    ("deepinfra", "https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    ("moonshot", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    ("nebius", "https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    ("novita", "https://api.novita.ai/v3/openai", "NOVITA_API_KEY"),
    ("nvidia", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY", "nvidia_nim"),
    ("perplexity", "https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    ("sambanova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    ("huggingface", "https://router.huggingface.co/v1", "HF_TOKEN"),
    ("ollama", "http://localhost:11434/v1", None),
    ("lmstudio", "http://localhost:1234/v1", None),
    ("vllm", "http://localhost:8000/v1", None),
    ("llamacpp", "http://localhost:8080/v1", None),
)
"""By the prefix of a model's name."""

# Whose models are so called. Without a provider a name is OpenAI's.
_FAMILIES = (
    ("claude", "anthropic"), ("gemini", "gemini"), ("mistral", "mistral"), ("mixtral", "mistral"),
    ("codestral", "mistral"), ("deepseek", "deepseek"), ("grok", "xai"), ("llama", "ollama"), ("qwen", "ollama"),
)  # fmt: skip


def meant(model: str) -> str | None:
    """The name with its provider in front, for one that OpenAI has no models of."""
    found = (provider for family, provider in _FAMILIES if model.lower().startswith(family))
    return next((f"{provider}/{model}" for provider in found), None)
