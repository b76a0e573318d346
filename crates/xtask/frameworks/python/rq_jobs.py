"""RQ: jobs in a queue: with dependencies, failing, scheduled for later."""
import operator
import sys
from datetime import timedelta

from redis import Redis
from rq import Queue, SimpleWorker
from rq.job import JobStatus
from rq.registry import FailedJobRegistry

redis = Redis(port=int(sys.argv[1]), db=3)
queue = Queue("work", connection=redis)
first = [queue.enqueue(operator.mul, n, n) for n in range(10)]
last = queue.enqueue(operator.add, 1, 1, depends_on=first)
failing = queue.enqueue(operator.truediv, 1, 0)
later = queue.enqueue_in(timedelta(hours=1), operator.add, 2, 2)
cancelled = queue.enqueue(operator.add, 3, 3)
cancelled.cancel()
SimpleWorker([queue], connection=redis).work(burst=True, logging_level="ERROR")
assert [job.return_value() for job in first] == [n * n for n in range(10)]
assert last.return_value() == 2
assert failing.get_status() == JobStatus.FAILED
assert failing.id in FailedJobRegistry(queue=queue)
assert later.id in queue.scheduled_job_registry
assert cancelled.return_value() is None and queue.count == 0
