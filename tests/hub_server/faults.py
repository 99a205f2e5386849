"""Faults on demand: what a request that fits gets instead of, or on the way to, its answer."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One way to go wrong, for the next `times` requests that fit, after `skip` of them went well."""

    path: str = ".*"
    """Regular expression for the whole path, without the query."""
    method: str = ".*"
    times: int = 1
    skip: int = 0
    status: int = 0
    """Answer with this status."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """Answer with this body."""
    wait_s: float = 0.0
    cut_after: int | None = None
    """Close the connection after so many bytes of the body."""
    add_to_length: int = 0
    """Send so many bytes more (zeros), or fewer, than there are."""
    loop: bool = False
    """A listing's page names itself as the next one."""
    seen: int = 0

    def takes(self, method: str, path: str) -> bool:
        """Whether this request is to fail. Call it once per request."""
        if not (re.fullmatch(self.path, path) and re.fullmatch(self.method, method)):
            return False
        self.seen += 1
        return self.skip < self.seen <= self.skip + self.times


def too_many(retry_after_s: int = 0, **values: object) -> Fault:
    """429 with Retry-After."""
    return Fault(status=429, headers={"Retry-After": str(retry_after_s)}, **values)  # type: ignore[arg-type]


def html(**values: object) -> Fault:
    """A page of some proxy, where JSON belongs."""
    page = b"<!DOCTYPE html><html><body>Please sign in to this network</body></html>"
    return Fault(status=200, headers={"Content-Type": "text/html"}, body=page, **values)  # type: ignore[arg-type]


@dataclass
class Quota:
    """So many requests per window, as the Hub allows them: beyond that 429, with what it says of the wait."""

    requests: int
    window_s: float
    times: deque[float] = field(default_factory=deque)
    refused: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def refusal(self) -> dict[str, str] | None:
        """The headers of the 429, or None when the request may pass."""
        with self.lock:
            now = time.monotonic()
            while self.times and now - self.times[0] > self.window_s:
                self.times.popleft()
            if len(self.times) < self.requests:
                self.times.append(now)
                return None
            self.refused += 1
            wait_s = max(1, round(self.window_s - (now - self.times[0])))
            policy = f'"fixed window";"api";q={self.requests};w={max(1, round(self.window_s))}'
            return {"RateLimit": f'"api";r=0;t={wait_s}', "RateLimit-Policy": policy}
