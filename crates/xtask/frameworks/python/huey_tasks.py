"""Huey: tasks with priorities, retries, a delay, a lock; the blocking queue and the sorted one."""
import sys
import time

from huey import PriorityRedisHuey, RedisHuey

for kind in (RedisHuey, PriorityRedisHuey):
    huey = kind("work", port=int(sys.argv[1]), db=4)
    tries = []

    @huey.task()
    def square(n):
        return n * n

    @huey.task(retries=2)
    def stubborn():
        tries.append(1)
        assert len(tries) == 2
        return "done"

    @huey.task()
    @huey.lock_task("alone")
    def alone():
        return "alone"

    consumer = huey.create_consumer(workers=2, periodic=False, check_worker_health=False)
    consumer.start()
    results = [square(n) for n in range(20)]
    assert [r.get(blocking=True, timeout=20) for r in results] == [n * n for n in range(20)]
    stubborn()
    while len(tries) < 2:
        time.sleep(0.02)
    assert alone().get(blocking=True, timeout=20) == "alone"
    assert square.schedule(args=(7,), delay=1).get(blocking=True, timeout=20) == 49
    consumer.stop(graceful=True)
    assert huey.pending_count() == 0
