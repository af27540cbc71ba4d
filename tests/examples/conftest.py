# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Examples that answer over HTTP."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest


@pytest.fixture(scope="session")
def serve():
    """Starts an example in a folder, and gives a client once it answers; ends it with its workers."""
    httpx = pytest.importorskip("httpx")

    @contextmanager
    def start(words, folder, health, environment):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, *map(str, words), "--port", str(port)]
        with open(folder / "log", "w") as log:
            options = {"cwd": folder, "env": os.environ | environment, "start_new_session": True}
            process = subprocess.Popen(command, stdout=log, stderr=log, **options)
            try:
                deadline = time.monotonic() + 200
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                    while True:
                        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
                        try:
                            if client.get(health).status_code == 200:
                                break
                        except httpx.TransportError:
                            pass
                        time.sleep(0.2)
                    yield client
                assert process.poll() is None
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    return start
