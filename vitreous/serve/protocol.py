"""HTTP/1.1 by uvicorn and h11, with the limits that clients of good will never meet."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from vitreous.serve.problem import MEDIA_TYPE, ProblemError
from vitreous.serve.settings import Limits

LAST_CALL = 0.3
"""Seconds in which a request may still come over a connection that was accepted before the end."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with limits that uvicorn does not have: on the time in which a request's head
    arrives (slow loris) and an answer is read, and on the number of connections. And it does not
    hang up on a request that is under way when the server stops."""

    limits = Limits()
    ending = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        if len(self.connections) > self.limits.connections:
            transport.abort()
            return
        self._await_head()

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.head, self._hang_up)

    def _head_arrived(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    @property
    def _awaits_head(self) -> bool:
        """Between requests, or when the rest of a body is to come that was answered already."""
        return self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE

    @property
    def _between_requests(self) -> bool:
        """Nothing of the next one is here."""
        return self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.our_state is h11.DONE and not self.transport.is_closing():
            self._await_head()

    def _hang_up(self) -> None:
        self._head_timer = self._write_timer = None
        self.transport.abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.upload, self._hang_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._was_read()

    def _was_read(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._between_requests:
            # The rest of a body that was answered already: uvicorn waits for what comes next only
            # behind an answer.
            self._head_arrived()
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self._awaits_head:
            self._await_head()
        else:
            self._head_arrived()
            if self.ending and self.cycle is not None:
                self.cycle.keep_alive = False

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        self._was_read()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """For what is no HTTP: like every error, it is answered by problem details."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()
            return
        answer = ProblemError("bad-request", "the request is no HTTP/1.1: its head is damaged")
        body = answer.response().body
        headers = {"content-type": MEDIA_TYPE, "content-length": str(len(body))}
        for event in (
            h11.Response(status_code=400, headers=[*headers.items(), ("connection", "close")]),
            h11.Data(data=bytes(body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def shutdown(self) -> None:
        self.ending = True
        if self._is_idle:
            self.loop.call_later(LAST_CALL, self._close_if_idle)
        else:
            super().shutdown()

    def _close_if_idle(self) -> None:
        if self._is_idle and not self.transport.is_closing():
            super().shutdown()
