"""All requests of one run to the Hub: a budget for them, time limits, and patience with 429, 5xx and a network that drops.

The Hub allows so many requests per five minutes, and counts files (addresses with `/resolve/`) apart, with five times as
many or more (huggingface.co/docs/hub/rate-limits: 500 and 3,000 without a token, 1,000 and 5,000 with one, 2,500 and
12,000 for PRO). So one budget is enough here, of which a file takes a fifth of a request.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from doesitrun.errors import HubError
from doesitrun.hub.repository import TIMEOUT_S, HubThrottledError

WINDOW_S = 300.0
WITHOUT_TOKEN, WITH_TOKEN = 450, 900
"""Nine tenths of what the Hub allows: others may ask from here, too."""
FILE_SHARE = 0.2
RETRIED = frozenset({408, 429, 500, 502, 503, 504})
TRIES = 6
LONGEST_WAIT_S = 2 * WINDOW_S
"""A wait that the Hub asks for is granted up to this: its windows are five minutes."""
READING = ("GET", "HEAD")
ASIDE = ("/api/agent-harnesses", "/api/telemetry")
"""What the client asks for reasons of its own: it does without an answer, so nobody waits for one."""


@dataclass(frozen=True)
class Waiting:
    """Why nothing is asked of the Hub for a while."""

    why: str
    seconds: float


@dataclass
class Traffic:
    """The requests of one run. Safe to use from many threads."""

    budget: int = WITHOUT_TOKEN
    """Requests per window."""
    window_s: float = WINDOW_S
    watch: Callable[[Waiting], None] = lambda _: None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    asked: int = 0
    waited_s: float = 0.0
    _pages: set[str] = field(default_factory=set)
    _spent: deque[tuple[float, float]] = field(default_factory=deque)
    _held_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, plain: Callable[..., Any], request: Any, **options: Any) -> Any:
        """The response to a request, after whatever waits it takes. Raises HubError when the Hub stays as it is."""
        if request.url.path.startswith(ASIDE):
            return plain(request, **options)
        limits = request.extensions.get("timeout") or {}
        if all(value is None for value in limits.values()):  # the client's listing has no time limit at all
            request.extensions = {**request.extensions, "timeout": dict.fromkeys(("connect", "read", "write", "pool"), TIMEOUT_S)}
        share = FILE_SHARE if "/resolve/" in request.url.path else 1.0
        for number in range(1, TRIES + 1):
            self._take(share)
            response = self._tried(plain, request, options, last=number == TRIES)
            if response is None:
                self._wait("the network failed", 2.0 ** (number - 1))
                continue
            pause_s = self._pause(request, response, number)
            if pause_s is None:
                self._check_page(str(request.url))
                return response
            response.close()
            if number == TRIES or pause_s > LONGEST_WAIT_S:
                raise _given_up(response.status_code, pause_s)
            self._wait(f"the Hub answered {response.status_code}", pause_s)
        raise AssertionError  # the last try returns or raises

    def _check_page(self, address: str) -> None:
        """Raises HubError for a later page of a listing that was read already: the client would follow it for ever."""
        if "cursor=" not in address:
            return
        with self._lock:
            if address in self._pages:
                raise HubError("The Hub's listing goes round in circles: try again later, or take a smaller --top.")
            self._pages.add(address)

    def _tried(self, plain: Callable[..., Any], request: Any, options: dict[str, Any], *, last: bool) -> Any:
        """The response; None where the network failed and a request that only reads may be sent again."""
        try:
            return plain(request, **options)
        except Exception as error:
            if last or request.method not in READING or not _is_of_the_network(error):
                raise
            return None

    def _pause(self, request: Any, response: Any, number: int) -> float | None:
        """Seconds to wait before the same request is sent again; None when the response stands."""
        self._hold(response)
        status = response.status_code
        # An upload's body is read while it is sent: the client itself begins it anew.
        again = (status == 429 and request.method != "PUT") or (status in RETRIED and request.method in READING)
        if not again:
            return None
        told = _told(response)
        return max(told, 0.05) if told is not None else 2.0 ** (number - 1)

    def _hold(self, response: Any) -> None:
        """Notes that the Hub says its own count is used up."""
        left = _quota(response)
        if left is not None and left.remaining == 0:
            with self._lock:
                self._held_until = max(self._held_until, self.clock() + min(left.reset_in_seconds, LONGEST_WAIT_S))

    def _take(self, share: float) -> None:
        """Waits until the budget has room, and takes it."""
        while True:
            with self._lock:
                now = self.clock()
                while self._spent and now - self._spent[0][0] >= self.window_s:
                    self._spent.popleft()
                used = sum(part for _, part in self._spent)
                pause_s = self._held_until - now
                if used + share > self.budget:
                    pause_s = max(pause_s, self._spent[0][0] + self.window_s - now)
                if pause_s <= 0:
                    self._spent.append((now, share))
                    self.asked += 1
                    return
            self._wait(f"{self.budget} requests per {self.window_s:g} s are used up", pause_s)

    def _wait(self, why: str, seconds: float) -> None:
        self.watch(Waiting(why, seconds))
        with self._lock:
            self.waited_s += seconds
        self.sleep(seconds)

    @contextmanager
    def governed(self) -> Iterator[None]:
        """Within, every request of huggingface_hub in this process goes through `send`."""
        from huggingface_hub import set_client_factory
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging  # type: ignore[attr-defined]
        from huggingface_hub.utils._http import default_client_factory

        def factory() -> Any:
            client = default_client_factory()
            # Its `request` and `stream` both send by `send`. A transport of ours would lose the proxies of the environment.
            setattr(client, "send", partial(self.send, client.send))  # noqa: B010 mypy knows it as a method
            return client

        verbosity, bars = logging.get_verbosity(), not are_progress_bars_disabled()
        set_client_factory(factory)
        logging.set_verbosity(40)  # waits are told by `watch`
        disable_progress_bars()
        try:
            yield
        finally:
            if bars:
                enable_progress_bars()
            logging.set_verbosity(verbosity)
            set_client_factory(default_client_factory)


def default_budget() -> int:
    """Requests per window that the Hub allows to whoever is logged in here, less a tenth."""
    from huggingface_hub import get_token

    return WITH_TOKEN if get_token() else WITHOUT_TOKEN


def _is_of_the_network(error: Exception) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"TransportError"})


def _quota(response: Any) -> Any:
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

    return parse_ratelimit_headers(response.headers)


def _told(response: Any) -> float | None:
    """Seconds that the Hub asks us to wait, by its RateLimit or Retry-After header."""
    left = _quota(response)
    if left is not None and left.remaining == 0:
        return float(left.reset_in_seconds)
    text = response.headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _given_up(status: int, pause_s: float) -> HubError:
    if status == 429:
        wait = f"{pause_s:.0f} seconds" if pause_s > LONGEST_WAIT_S else "five minutes"
        return HubThrottledError(f"The Hub asked us to slow down (429): wait {wait}, or set HF_TOKEN for a higher limit.")
    return HubError(f"The Hub failed {TRIES} times in a row ({status}): try again later, what was read is kept.")
