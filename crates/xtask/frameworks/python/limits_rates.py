"""limits: all its strategies let through as many as they say, from many threads at once."""
import sys
from concurrent.futures import ThreadPoolExecutor

from limits import parse, strategies
from limits.storage import RedisStorage

storage = RedisStorage(f"redis://127.0.0.1:{sys.argv[1]}/9")
assert storage.check()
for kind in ("FixedWindow", "MovingWindow", "SlidingWindowCounter"):
    limiter = getattr(strategies, f"{kind}RateLimiter")(storage)
    rate = parse("40/hour")
    with ThreadPoolExecutor(8) as pool:
        let_through = sum(pool.map(lambda _: limiter.hit(rate, kind), range(120)))
    assert let_through == 40, (kind, let_through)
    assert not limiter.test(rate, kind)
    assert limiter.get_window_stats(rate, kind).remaining == 0
    limiter.clear(rate, kind)
    assert limiter.test(rate, kind)
