"""arq: jobs with results, an identity of their own, a delay, a retry."""
import asyncio
import sys
from datetime import timedelta

from arq import Retry, create_pool
from arq.connections import RedisSettings
from arq.worker import Worker


async def double(ctx, n):
    return 2 * n


async def stubborn(ctx):
    if ctx["job_try"] < 3:
        raise Retry(defer=0.1)
    return ctx["job_try"]


async def main():
    settings = RedisSettings(port=int(sys.argv[1]), database=6)
    pool = await create_pool(settings)
    jobs = [await pool.enqueue_job("double", n) for n in range(20)]
    once = await pool.enqueue_job("double", 21, _job_id="once", _defer_by=timedelta(seconds=0.5))
    assert await pool.enqueue_job("double", 21, _job_id="once") is None
    again = await pool.enqueue_job("stubborn")
    worker = Worker([double, stubborn], redis_settings=settings, burst=True, poll_delay=0.05, handle_signals=False)
    await worker.main()
    assert [await job.result(timeout=20) for job in jobs] == [2 * n for n in range(20)]
    assert await once.result(timeout=20) == 42
    assert await again.result(timeout=20) == 3
    await worker.close()
    await pool.aclose()


asyncio.run(main())
