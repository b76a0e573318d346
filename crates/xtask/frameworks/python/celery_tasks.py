"""Celery: a worker, a chord, and tasks: retried, with a countdown, revoked."""
import sys
import threading
import time

from celery import Celery, chord, group
from celery.contrib.testing.worker import start_worker

url = f"redis://127.0.0.1:{sys.argv[1]}"
app = Celery("work", broker=f"{url}/1", backend=f"{url}/2")
app.conf.update(broker_transport_options={"visibility_timeout": 60}, worker_hijack_root_logger=False)
tries = []


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def stubborn(self):
    tries.append(1)
    if len(tries) < 3:
        raise self.retry(countdown=0.1)
    return len(tries)


if __name__ == "__main__":
    with start_worker(app, perform_ping_check=False, pool="threads", concurrency=4, loglevel="error"):
        assert add.delay(2, 3).get(timeout=20) == 5
        assert group(add.s(n, n) for n in range(20))().get(timeout=20) == [2 * n for n in range(20)]
        assert chord((add.s(n, 1) for n in range(10)), total.s())().get(timeout=20) == 55
        assert (add.s(1, 2) | add.s(10)).delay().get(timeout=20) == 13
        assert stubborn.delay().get(timeout=20) == 3
        start = time.monotonic()
        assert add.apply_async((1, 1), countdown=1).get(timeout=20) == 2
        assert time.monotonic() - start >= 0.9
        assert app.control.ping(timeout=2)
    # What a worker leaves beside its own threads ends with the process.
    for thread in threading.enumerate():
        thread.daemon or thread is threading.current_thread() or thread.join(5)
