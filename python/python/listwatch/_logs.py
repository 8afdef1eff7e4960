"""Passes the warnings of the library to ``logging``, in a thread that waits without the GIL."""

from __future__ import annotations

import atexit
import logging
import os
import threading

from ._listwatch import after_fork, close_log, drop_keys, next_log_lines

_logger = logging.getLogger("listwatch")
_thread: threading.Thread | None = None
_lock = threading.Lock()


def _run() -> None:
    while (lines := next_log_lines()) is not None:
        for level, text in lines:
            _logger.log(level, "%s", text)


def start() -> None:
    """Starts the thread, once in each process."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_run, name="listwatch-logging", daemon=True)
            _thread.start()


def _stop() -> None:
    close_log()
    if _thread is not None:
        _thread.join(1)
    drop_keys()


def _in_child() -> None:
    global _thread, _lock
    _thread, _lock = None, threading.Lock()
    after_fork()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_stop)
