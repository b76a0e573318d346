"""Dramatiq: actors, results, a group, retries, a delay, a rate limiter of its own."""
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend as Limits
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

url = f"redis://127.0.0.1:{sys.argv[1]}/5"
broker = RedisBroker(url=url)
broker.add_middleware(Results(backend=RedisBackend(url=url)))
dramatiq.set_broker(broker)
tries = []


@dramatiq.actor(store_results=True)
def cube(n):
    return n**3


@dramatiq.actor(store_results=True, min_backoff=50, max_backoff=50)
def stubborn():
    tries.append(1)
    assert len(tries) == 3
    return len(tries)


worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=50)
worker.start()
assert list(dramatiq.group(cube.message(n) for n in range(30)).run().get_results(block=True)) == [n**3 for n in range(30)]
assert stubborn.send().get_result(block=True, timeout=20_000) == 3
assert cube.send_with_options(args=(2,), delay=300).get_result(block=True, timeout=20_000) == 8
limiter = ConcurrentRateLimiter(Limits(url=url), "few", limit=1)
with limiter.acquire(raise_on_failure=False) as first, limiter.acquire(raise_on_failure=False) as second:
    assert first and not second
broker.join(cube.queue_name, timeout=20_000)
worker.stop()
