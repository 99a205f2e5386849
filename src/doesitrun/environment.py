"""What a child finds in its environment: what the harness has, without its secrets. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

SECRET_NAME = re.compile(
    r"TOKEN(?!I[ZS])|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|SSHPASS|COOKIE"
    r"|(API|ACCESS|PRIVATE|SIGNING|ENCRYPTION|SSH|AUTH|ACCOUNT|DEPLOY|MASTER)_?KEY"
    r"|(^|_)(KEY|KEYS|PASS|PAT|AUTH)($|_)|(?<=_)PWD$|^KUBECONFIG$|^GPG_AGENT_INFO$",
    re.IGNORECASE,
)
KEPT_TOKENS = ("HF_TOKEN", "HF_TOKEN_PATH", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_HUB_TOKEN")
LOGIN_IN_URL = re.compile(r"://[^/\s@]+@")
PLAIN_VALUE = re.compile(r"[A-Za-z]{0,9}|[\d.]{0,9}")
"""Values such as `true` or `1`, which other variables may share with a secret by chance."""
CONTAINED_BYTES = 12
"""A secret at least this long is also looked for inside other values."""
NO_TOKEN = {"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1", "HF_TOKEN_PATH": "/nonexistent/doesitrun/token"}
"""Keeps a stored login of the Hub from being used, too."""
TELLING = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
"""Nothing printed is lost at a crash, and a crash says where it was."""


def child_environment(base: Mapping[str, str], extra: Mapping[str, str], *, keep_token: bool) -> dict[str, str]:
    """The environment of a child: `base` without its secrets, then `extra`.

    Secrets are variables with a telling name, those whose value holds a secret found that way, and addresses with
    a login in them (other than those of a proxy, which the network may need).
    `keep_token` leaves the Hub's token in; without it a stored login is not used either.
    """
    kept_names = KEPT_TOKENS if keep_token else ()
    secret = {name: value for name, value in base.items() if SECRET_NAME.search(name) and name not in kept_names}
    values = [value for value in secret.values() if not PLAIN_VALUE.fullmatch(value)]
    kept = {name: value for name, value in base.items() if name not in secret and not _tells(name, value, values)}
    if keep_token:
        kept |= {name: base[name] for name in KEPT_TOKENS if name in base}
    return kept | TELLING | ({} if keep_token else NO_TOKEN) | dict(extra)


def _tells(name: str, value: str, secrets: Sequence[str]) -> bool:
    if LOGIN_IN_URL.search(value) and not name.upper().endswith("_PROXY"):
        return True
    return any(value == secret or (len(secret) >= CONTAINED_BYTES and secret in value) for secret in secrets)
