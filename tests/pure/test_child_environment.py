"""No secret reaches a child."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.environment import child_environment

SECRETS = [
    "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN",
    "OPENAI_API_KEY", "WANDB_APIKEY", "PGPASSWORD", "MYSQL_PWD", "DB_PASSWD", "SSH_PRIVATE_KEY", "GOOGLE_APPLICATION_CREDENTIALS",
    "client_secret", "NPM_AUTHTOKEN", "API_TOKENS", "SIGNING_KEY", "SSH_AUTH_SOCK", "SESSION_COOKIE", "GPG_PASSPHRASE", "ENCRYPTIONKEY",
]  # fmt: skip
HARMLESS = [
    "PATH", "HOME", "PWD", "OLDPWD", "LANG", "TOKENIZERS_PARALLELISM", "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE", "LD_LIBRARY_PATH",
    "NEURON_RT_VISIBLE_CORES", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR", "PYTHONPATH", "KEYBOARD", "AUTHOR",
    "HTTPS_PROXY", "VIRTUAL_ENV", "TOKENISER",
]  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_removed(name):
    assert name not in child_environment({name: "s3cr3t"}, {}, keep_token=False)


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_variable_stays(name):
    assert child_environment({name: "some value"}, {}, keep_token=False)[name] == "some value"


def test_the_hubs_token_is_kept_on_demand_alone():
    base = {"HF_TOKEN": "hf_abcdefgh", "HF_TOKEN_PATH": "/home/me/token", "GITHUB_TOKEN": "ghp_12345678"}
    kept = child_environment(base, {}, keep_token=True)
    assert kept["HF_TOKEN"] == "hf_abcdefgh"
    assert kept["HF_TOKEN_PATH"] == "/home/me/token"
    assert "GITHUB_TOKEN" not in kept
    assert "HF_HUB_DISABLE_IMPLICIT_TOKEN" not in kept


def test_without_the_token_a_stored_login_is_not_used_either():
    env = child_environment({"HF_TOKEN_PATH": "/home/me/token"}, {}, keep_token=False)
    assert env["HF_HUB_DISABLE_IMPLICIT_TOKEN"] == "1"
    assert env["HF_TOKEN_PATH"].startswith("/nonexistent/")


def test_a_copy_of_a_secret_is_removed_too():
    base = {"HF_TOKEN": "hf_abcdefghijkl", "MY_COPY": "hf_abcdefghijkl", "INDEX": "x=hf_abcdefghijkl&y"}
    env = child_environment(base, {}, keep_token=False)
    assert {"HF_TOKEN", "MY_COPY", "INDEX"}.isdisjoint(env)


def test_a_plain_value_that_a_secret_shares_by_chance_stays():
    assert child_environment({"USE_AUTH_TOKEN": "1", "OMP_NUM_THREADS": "1"}, {}, keep_token=False)["OMP_NUM_THREADS"] == "1"


def test_an_address_with_a_login_is_removed_but_a_proxy_stays():
    base = {"PIP_INDEX_URL": "https://me:pw@host/simple", "https_proxy": "http://me:pw@proxy:3128", "HF_ENDPOINT": "https://host/a@b"}
    env = child_environment(base, {}, keep_token=False)
    assert "PIP_INDEX_URL" not in env
    assert env["https_proxy"] == base["https_proxy"]
    assert env["HF_ENDPOINT"] == base["HF_ENDPOINT"]


def test_what_is_asked_for_comes_last():
    assert (
        child_environment({"A": "1"}, {"A": "2", "PYTHONUNBUFFERED": "0"}, keep_token=False).items()
        >= {"A": "2", "PYTHONUNBUFFERED": "0"}.items()
    )


@given(st.dictionaries(st.sampled_from(SECRETS + HARMLESS), st.text(min_size=10, max_size=30)))
def test_no_value_of_a_secret_survives(base):
    env = child_environment(base, {}, keep_token=False)
    secrets = {base[name] for name in SECRETS if name in base}
    assert secrets.isdisjoint(env.values())
